//! The thread of a slot: it runs orders with the slot's prober.

use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::order::{Done, News, Work};
use crate::model::Progress;
use crate::probe::{ProbeError, Prober};

/// The prober of a slot, which the slot's thread uses until it ends.
pub(super) type Kept<'p> = Mutex<Option<Box<dyn Prober + Send + 'p>>>;

/// A message from a slot's thread.
pub(super) enum Told {
    Progress(Progress),
    Disturbed(String),
    Remark(String),
    Ended(Box<Result<Done, ProbeError>>),
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
        if told.send((at, Told::Ended(Box::new(ended)))).is_err() || is_lost {
            break;
        }
    }
    // The prober's resources end before this thread does.
    drop(locked(prober).take());
    let _ = told.send((at, Told::Gone));
}
