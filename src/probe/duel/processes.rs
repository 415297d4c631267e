//! A duel of processes one after the other, each an ordinary probe: the fallback if no process can be held.

use std::time::Instant;

use super::super::{Job, ProbeError, Prober};
use super::bout::Bout;
use super::{Block, DuelEnd, Side, Stage};
use crate::model::Outcome;

/// How often a disturbed probe is repeated.
const MOST_REPEATS: u32 = 2;

/// Measures each turn in a separate process.
pub(in crate::probe) fn run<P: Prober + ?Sized>(
    prober: &mut P,
    bout: &mut Bout<'_, '_>,
) -> Result<DuelEnd, ProbeError> {
    bout.stage = Stage::Measuring;
    let mut repeats = 0;
    loop {
        let side = match bout.next() {
            Ok(side) => side,
            Err(end) => return Ok(end),
        };
        let job = Job { keeps: false, ..*bout.duel.job(side) };
        let began = Instant::now();
        let outcome = prober.probe(&job, &mut bout.watch(side))?;
        if matches!(outcome, Outcome::Interrupted) {
            return Ok(DuelEnd::Interrupted);
        }
        if matches!(outcome, Outcome::Disturbed(_)) && repeats < MOST_REPEATS {
            repeats += 1;
            continue;
        }
        let block = block_of(side, &outcome, (bout.began, began));
        bout.sides[side.place()] = Some(outcome);
        match block {
            Some(block) => bout.blocks.push(block),
            None => return Ok(DuelEnd::Failed),
        }
    }
}

/// Converts a probe to a block; `None` if it has no throughput.
fn block_of(side: Side, outcome: &Outcome, (began, probe_began): (Instant, Instant)) -> Option<Block> {
    let measurement = outcome.measurement()?;
    Some(Block {
        side,
        begin_s: probe_began.duration_since(began).as_secs_f64(),
        end_s: began.elapsed().as_secs_f64(),
        steps: measurement.timing.steps,
        dropped_steps: measurement.timing.warmup_steps,
        rate: measurement.throughput?.value,
        has_epoch_ends: measurement.timing.epoch_factor.is_some(),
    })
}
