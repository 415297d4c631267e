//! The thread of a slot: it runs what is ordered with the slot's prober.

use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::order::{Done, News, Work};
use crate::model::Progress;
use crate::probe::{ProbeError, Prober};

/// A prober that the thread of its slot uses, until it is over.
pub(super) type Kept<'p> = Mutex<Option<Box<dyn Prober + Send + 'p>>>;

/// What a thread tells.
pub(super) enum Told {
    Progress(Progress),
    Disturbed(String),
    Remark(String),
    Ended(Box<Result<Done, ProbeError>>),
    /// The thread is over, and its prober dropped.
    Gone,
    /// The prober panicked.
    Lost,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what is ordered until nobody can order any more.
pub(super) fn serve(
    prober: &Kept<'_>,
    orders: &Receiver<Work>,
    told: &Sender<(usize, Told)>,
    at: usize,
    stop: impl Fn() -> bool,
) {
    const TELL_EVERY: Duration = Duration::from_millis(50);
    /// Says so when the prober panics, so that nobody waits for it.
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
                // A step in this process may be so short that there is news each microsecond.
                News::Progress(_) if Instant::now() < next => return,
                News::Progress(progress) => Told::Progress(progress.clone()),
                News::Disturbed(reason) => Told::Disturbed(reason.to_owned()),
                News::Remark(text) => Told::Remark(text.to_owned()),
            };
            next = Instant::now() + TELL_EVERY;
            let _ = told.send((at, news));
        });
        // What is lost is let go at once, so that whatever is there may come again.
        let is_lost = matches!(ended, Err(ProbeError::Lost { .. }));
        if told.send((at, Told::Ended(Box::new(ended)))).is_err() || is_lost {
            break;
        }
    }
    // What it holds ends before this thread does.
    drop(locked(prober).take());
    let _ = told.send((at, Told::Gone));
}
