//! The thread of a slot, which runs orders with the slot's prober, and the slots that join a running search.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::request::{Done, News, Work};
use super::slots::{InSlot, OnEvent};
use crate::model::{Event, Progress, Slot};
use crate::probe::{Holds, ProbeError, Prober};

/// The prober of a slot, which the slot's thread uses until it ends.
pub(super) type Kept<'p> = Mutex<Option<Box<dyn Prober + Send + 'p>>>;

/// A message from a slot's thread.
pub(super) enum Told {
    Progress(Progress),
    Disturbed(String),
    Remark(String),
    Ended(Box<Result<Done, ProbeError>>, Holds),
    /// The thread ended and dropped its prober.
    Gone,
    /// The prober panicked.
    Lost,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs orders until no sender of orders is left, or the prober is lost.
pub(super) fn serve(
    prober: &Kept<'_>,
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
        let mut prober = locked(prober);
        let Some(prober) = prober.as_mut() else { return };
        let mut next = Instant::now();
        let ended = order.run(prober.as_mut(), &stop, &mut |news| {
            let news = match news {
                // A step in this process may be so short that it reports progress every microsecond.
                News::Progress(_) if Instant::now() < next => return,
                News::Progress(progress) => Told::Progress(progress.clone()),
                News::Disturbed(reason) => Told::Disturbed(reason.to_owned()),
                News::Remark(text) => Told::Remark(text.to_owned()),
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
    drop(locked(prober).take());
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
    waiting: VecDeque<InSlot<'p>>,
}

impl<'p> Arrivals<'p> {
    pub(super) fn from(next: Box<dyn FnMut() -> Option<Arrival<'p>> + 'p>) -> Self {
        Self { next, waiting: VecDeque::new() }
    }

    /// Collects new slots, and passes remarks on.
    pub(super) fn look(&mut self, on_event: OnEvent<'_>) {
        while let Some(arrival) = (self.next)() {
            match arrival {
                Arrival::Slot(slot, prober) => self.waiting.push_back((Some(slot), prober)),
                Arrival::Remark(text) => on_event(Event::Remark { text: &text }),
            }
        }
    }

    /// Takes a waiting slot.
    pub(super) fn take(&mut self) -> Option<InSlot<'p>> {
        self.waiting.pop_front()
    }
}
