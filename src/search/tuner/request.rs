//! The work that a prober is asked to do, and how it is run: in the thread of a slot, which gets orders and sends messages. A
//! disturbed probe is repeated. Also the slots that join a running search.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use crate::model::{Config, Event, Failure, Outcome, Progress, Purpose, Settings, Slot};
use crate::probe::duel::{Duel, Duelled, Way};
use crate::probe::{Effort, Experiment, Holds, Job, Limits, ProbeError, Prober};
use crate::search::strategy::Proposal;

pub(super) type OnEvent<'e> = &'e mut dyn FnMut(Event<'_>);

/// A prober and its slot; `None` if it has the whole machine.
pub(super) type InSlot<'p> = (Option<Slot>, Box<dyn Prober + Send + 'p>);

/// A config to probe, and how. It is sent to the thread of a slot.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) number: u32,
    pub(super) proposal: Proposal,
    pub(super) purpose: Purpose,
    pub(super) settings: Settings,
    pub(super) limits: Limits,
    /// The time that the search had left when it made the request.
    pub(super) left: Duration,
    pub(super) effort: Effort,
    pub(super) experiment: Option<Experiment>,
    pub(super) keeps: bool,
    /// True if the last probe was disturbed in every attempt.
    pub(super) is_after_disturbance: bool,
    /// The slot in which it failed, if it is retried elsewhere for that reason.
    pub(super) failed_in: Option<usize>,
    /// True if the probe only loads the machine while other probes measure. It is not recorded.
    pub(super) is_load: bool,
}

impl Request {
    pub(super) fn new(proposal: Proposal, purpose: Purpose, settings: Settings, limits: Limits) -> Self {
        Self {
            number: 0,
            proposal,
            purpose,
            settings,
            limits,
            left: Duration::MAX,
            effort: Effort::Probe,
            experiment: None,
            keeps: false,
            is_after_disturbance: false,
            failed_in: None,
            is_load: false,
        }
    }

    pub(super) fn config(&self) -> &Config {
        &self.proposal.config
    }

    fn job(&self) -> Job {
        let job = Job::new(self.number, self.config(), &self.settings, &self.limits);
        Job { effort: self.effort, experiment: self.experiment.clone(), keeps: self.keeps, ..job }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Round {
    pub(super) number: u32,
    /// One request for each config. All configs are compared with the first.
    pub(super) requests: Vec<Request>,
    pub(super) ways: &'static [Way],
    /// The configs whose processes stay, besides the configs of the round.
    pub(super) kept: Vec<Config>,
    /// The configs whose processes are restarted first.
    pub(super) restarts: Vec<Config>,
    pub(super) seed: u64,
    /// The time after which no slice begins.
    pub(super) time: Duration,
}

#[derive(Debug, Clone)]
pub(super) enum Work {
    Probe(Box<Request>),
    Round(Round),
}

pub(super) enum Done {
    Probe(Box<Outcome>),
    Round(Box<Duelled>),
}

impl Work {
    pub(super) fn run(
        &self,
        prober: &mut dyn Prober,
        stop: impl Fn() -> bool,
        tell: OnEvent<'_>,
    ) -> Result<Done, ProbeError> {
        Ok(match self {
            Self::Probe(request) => Done::Probe(Box::new(undisturbed(prober, request, stop, tell)?)),
            Self::Round(round) => Done::Round(Box::new(round.run(prober, stop, tell)?)),
        })
    }
}

impl Round {
    fn run(&self, prober: &mut dyn Prober, stop: impl Fn() -> bool, tell: OnEvent<'_>) -> Result<Duelled, ProbeError> {
        let number = self.requests.first().map_or(0, |request| request.number);
        let configs = self.requests.iter().map(Request::config).chain(&self.kept);
        prober.keep(&configs.cloned().collect::<Vec<Config>>());
        self.restarts.iter().for_each(|config| prober.restart(config));
        let jobs: Vec<Job> = self.requests.iter().map(Request::job).collect();
        // The search decides after each round, from all of its rounds, whether to go on.
        let duel = Duel {
            jobs: &jobs,
            half_width: 0.0,
            rounds: 1,
            time: self.time,
            ways: self.ways,
            seed: Some(self.seed),
            keeps: true,
        };
        let duelled = prober.duel(&duel, &mut |progress| {
            tell(Event::Progress { number, progress: progress.probe });
            if stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        for remark in prober.remarks() {
            tell(Event::Remark { text: &remark });
        }
        Ok(duelled)
    }
}

/// Runs a probe, and repeats it after a pause if it was disturbed, since a disturbed probe says nothing about its config. Disturbed
/// attempts are not recorded. If all attempts are disturbed, the result is `Disturbed`.
fn undisturbed(
    prober: &mut dyn Prober,
    request: &Request,
    stop: impl Fn() -> bool,
    tell: OnEvent<'_>,
) -> Result<Outcome, ProbeError> {
    const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(5)];
    /// This process may notice this much later than a worker that their job was ended. A round number.
    const ENDED_TOGETHER: Duration = Duration::from_secs(1);
    const PAUSE_IN_A_ROW: Duration = Duration::from_secs(5);
    let (number, mut last) = (request.number, Failure::new(""));
    for (at, pause) in PAUSES.into_iter().enumerate() {
        if at > 0 {
            tell(Event::Warning { text: &format!("{number:>4}  disturbed, and probed again: {}", last.reason) });
        }
        if !wait(if at == 0 && request.is_after_disturbance { PAUSE_IN_A_ROW } else { pause }, &stop) {
            return Ok(Outcome::Interrupted);
        }
        let outcome = prober.probe(&request.job(), &mut |progress| {
            tell(Event::Progress { number, progress });
            if stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if matches!(outcome, Err(ProbeError::Lost { .. })) && !wait(ENDED_TOGETHER, &stop) {
            return Ok(Outcome::Interrupted);
        }
        let outcome = outcome?;
        for remark in prober.remarks() {
            tell(Event::Remark { text: &remark });
        }
        match outcome {
            Outcome::Disturbed(failure) => last = failure,
            outcome => return Ok(outcome),
        }
    }
    Ok(Outcome::Disturbed(last))
}

/// Waits unless the search is stopped. Returns true if it was not.
fn wait(time: Duration, stop: impl Fn() -> bool) -> bool {
    const LOOK_EVERY: Duration = Duration::from_millis(50);
    let begin = Instant::now();
    while begin.elapsed() < time && !stop() {
        std::thread::sleep(LOOK_EVERY);
    }
    !stop()
}

/// A message from a slot's thread.
pub(super) enum Told {
    /// The progress of the work on the trial of this number.
    Progress(u32, Progress),
    Remark(String),
    Warning(String),
    Ended(Box<Result<Done, ProbeError>>, Holds),
    /// The thread ended and dropped its prober.
    Gone,
    /// The prober panicked.
    Lost,
}

/// Runs orders until no sender of orders is left, or the prober is lost.
pub(super) fn serve(
    mut prober: Box<dyn Prober + Send + '_>,
    orders: &Receiver<Work>,
    told: &Sender<(usize, Told)>,
    at: usize,
    stop: impl Fn() -> bool,
) {
    const TELL_EVERY: Duration = Duration::from_millis(50);
    /// Sends a message if the prober panics, so that the search does not wait for it.
    struct Watched<'t>(&'t Sender<(usize, Told)>, usize);
    impl Drop for Watched<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let _ = self.0.send((self.1, Told::Lost));
            }
        }
    }
    let _watched = Watched(told, at);
    for order in orders {
        let mut next = Instant::now();
        let ended = order.run(prober.as_mut(), &stop, &mut |event| {
            let news = match event {
                // A step in this process may be so short that it reports progress every microsecond.
                Event::Progress { .. } if Instant::now() < next => return,
                Event::Progress { number, progress } => Told::Progress(number, progress.clone()),
                Event::Remark { text } => Told::Remark(text.to_owned()),
                Event::Warning { text } => Told::Warning(text.to_owned()),
                _ => return,
            };
            next = Instant::now() + TELL_EVERY;
            let _ = told.send((at, news));
        });
        // Drop a lost prober at once, so that its worker can reconnect.
        let is_lost = matches!(ended, Err(ProbeError::Lost { .. }));
        if told.send((at, Told::Ended(Box::new(ended), prober.holds()))).is_err() || is_lost {
            break;
        }
    }
    // The prober's resources end before this thread does.
    drop(prober);
    let _ = told.send((at, Told::Gone));
}

/// A slot or a remark that reaches a running search.
pub enum Arrival<'p> {
    /// A slot with its prober.
    Slot(Slot, Box<dyn Prober + Send + 'p>),
    /// A line to show to the user.
    Remark(String),
}

/// The source of arrivals, and the slots that wait until they can take part.
pub(super) struct Arrivals<'p> {
    next: Box<dyn FnMut() -> Option<Arrival<'p>> + 'p>,
    pub(super) waiting: VecDeque<InSlot<'p>>,
}

impl<'p> Arrivals<'p> {
    pub(super) fn from(next: Box<dyn FnMut() -> Option<Arrival<'p>> + 'p>) -> Self {
        Self { next, waiting: VecDeque::new() }
    }

    pub(super) fn look(&mut self, on_event: OnEvent<'_>) {
        while let Some(arrival) = (self.next)() {
            match arrival {
                Arrival::Slot(slot, prober) => self.waiting.push_back((Some(slot), prober)),
                Arrival::Remark(text) => on_event(Event::Remark { text: &text }),
            }
        }
    }
}
