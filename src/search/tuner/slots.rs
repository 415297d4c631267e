//! Where probes run: in one place, which is asked and waited for, or in several slots side by side, each with a prober and a
//! thread of its own.
//!
//! A thread lives as long as the search, since what a prober has started may ask to die with the thread that started it
//! (prctl(2), `PR_SET_PDEATHSIG`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use super::order::{News, Order, undisturbed};
use crate::model::{Event, Outcome, Progress, Slot};
use crate::probe::duel::{Duel, DuelWatch, Duelled};
use crate::probe::{ProbeError, Prober};

/// Who hears the events of a search.
pub(super) type OnEvent<'e> = &'e mut dyn FnMut(Event<'_>);

/// A prober in a slot, or with the whole machine.
pub(super) type InSlot<'p> = (Option<Slot>, Box<dyn Prober + Send + 'p>);

/// A prober that the thread of its slot uses, until it is over.
type Kept<'p> = Mutex<Option<Box<dyn Prober + Send + 'p>>>;

/// What a thread tells.
enum Told {
    Progress(Progress),
    Disturbed(String),
    Remark(String),
    Ended(Box<Result<Outcome, ProbeError>>),
    /// The thread is over, and its prober dropped.
    Gone,
    /// The prober panicked.
    Lost,
}

/// A probe that is over.
pub(super) struct Ended {
    pub(super) slot: usize,
    /// Nothing if the slot is gone, and says nothing about the config.
    pub(super) outcome: Option<Outcome>,
}

/// What all threads of a search share.
pub(super) struct Shared<'p> {
    probers: Vec<(Option<Slot>, Kept<'p>)>,
    /// Set when the search cannot go on, whatever is under way.
    is_over: AtomicBool,
}

impl<'p> Shared<'p> {
    pub(super) fn new(probers: Vec<InSlot<'p>>) -> Self {
        let probers = probers.into_iter().map(|(slot, prober)| (slot, Mutex::new(Some(prober)))).collect();
        Self { probers, is_over: AtomicBool::new(false) }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The places where probes run.
pub(super) struct Slots<'s, 'p> {
    kind: Kind<'s, 'p>,
    stop: &'s AtomicBool,
    running: Vec<Option<Order>>,
    /// Whether each takes part. At first the first does.
    open: Vec<bool>,
    /// Those that are gone, or were ended.
    lost: Vec<bool>,
    /// Whether the last ones went because their allocation ends.
    is_out_of_time: bool,
}

enum Kind<'s, 'p> {
    One(Box<dyn Prober + 'p>),
    Many { shared: &'s Shared<'p>, orders: Vec<Option<Sender<Order>>>, told: Receiver<(usize, Told)> },
}

impl<'s, 'p> Slots<'s, 'p> {
    /// One place, in this thread.
    pub(super) fn one(prober: Box<dyn Prober + 'p>, stop: &'s AtomicBool) -> Self {
        Self {
            kind: Kind::One(prober),
            stop,
            running: vec![None],
            open: vec![true],
            lost: vec![false],
            is_out_of_time: false,
        }
    }

    /// A thread for each prober. They end when this is dropped.
    pub(super) fn many<'scope>(
        shared: &'scope Shared<'p>,
        scope: &'scope Scope<'scope, '_>,
        stop: &'scope AtomicBool,
    ) -> Self
    where
        'scope: 's,
        'p: 'scope,
    {
        let (sender, told) = channel();
        let serve = |(at, (_, prober)): (usize, &'scope (Option<Slot>, Kept<'p>))| {
            let (orders, received) = channel();
            let sender = sender.clone();
            scope.spawn(move || serve(prober, &received, &sender, at, || is_set(stop) || is_set(&shared.is_over)));
            Some(orders)
        };
        let orders: Vec<Option<Sender<Order>>> = shared.probers.iter().enumerate().map(serve).collect();
        let count = orders.len();
        let open = (0..count).map(|at| at == 0).collect();
        let (running, lost) = (vec![None; count], vec![false; count]);
        Self { kind: Kind::Many { shared, orders, told }, stop, running, open, lost, is_out_of_time: false }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.running.len()
    }

    /// How many take part now.
    pub(super) fn open(&self) -> usize {
        self.open.iter().filter(|open| **open).count()
    }

    /// Has slots take part, or not.
    pub(super) fn set_open(&mut self, slots: impl IntoIterator<Item = usize>, is_open: bool) {
        slots.into_iter().for_each(|slot| self.open[slot] = is_open && !self.lost[slot]);
    }

    /// Where probes run that have to be alone: in the first place, as long as it is there.
    pub(super) fn home(&self) -> usize {
        self.lost.iter().position(|lost| !lost).unwrap_or(0)
    }

    /// The places that are parts of the machine: all, unless the first has the whole of it.
    pub(super) fn parts(&self) -> std::ops::Range<usize> {
        usize::from(self.slot(0).is_none()).min(self.count() - 1)..self.count()
    }

    /// Has all parts take part.
    pub(super) fn open_parts(&mut self) {
        self.set_open([self.home()], false);
        self.set_open(self.parts(), true);
    }

    /// Leaves only the first, while nothing runs. Others on its machine end with what they keep for their next probe; those of
    /// other machines stay, in case it goes.
    pub(super) fn leave_the_first(&mut self) {
        self.leave_only(&[self.home()]);
    }

    /// Leaves only some, while nothing runs. Others on their machines end, as far as the first is not needed for probes alone.
    pub(super) fn leave_only(&mut self, left: &[usize]) {
        let home = self.home();
        self.set_open(0..self.running.len(), false);
        self.set_open(left.iter().copied(), true);
        let host = |at: usize| self.slot(at).map(|slot| &slot.host);
        let is_beside = |at: usize| left.iter().any(|&other| host(other).is_none() || host(at) == host(other));
        let beside: Vec<usize> =
            (0..self.count()).filter(|at| *at != home && !left.contains(at) && is_beside(*at)).collect();
        let Kind::Many { orders, told, .. } = &mut self.kind else { return };
        let mut ending = 0;
        for at in beside {
            self.lost[at] = true;
            ending += usize::from(orders[at].take().is_some());
        }
        while ending > 0 {
            match told.recv() {
                Ok((_, Told::Gone | Told::Lost)) => ending -= 1,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// What a trial there is said to have had; nothing where there is only one place.
    pub(super) fn slot(&self, at: usize) -> Option<&Slot> {
        match &self.kind {
            Kind::One(_) => None,
            Kind::Many { shared, .. } => shared.probers.get(at)?.0.as_ref(),
        }
    }

    /// The slots that could begin a probe now.
    pub(super) fn free(&self) -> Vec<usize> {
        (0..self.count()).filter(|&at| self.open[at] && self.running[at].is_none()).collect()
    }

    /// Whether no place is left, since their allocations end.
    pub(super) fn are_out_of_time(&self) -> bool {
        self.is_out_of_time
    }

    /// Whether nothing runs.
    pub(super) fn is_idle(&self) -> bool {
        self.running.iter().all(Option::is_none)
    }

    /// Begins a probe in a free slot.
    pub(super) fn start(&mut self, slot: usize, order: Order) {
        if let Kind::Many { orders, .. } = &self.kind {
            // A thread that is gone has said so.
            if let Some(orders) = &orders[slot] {
                let _ = orders.send(order.clone());
            }
        }
        self.running[slot] = Some(order);
    }

    /// Waits until a probe is over.
    ///
    /// # Errors
    /// Probing is impossible; then all are over.
    pub(super) fn next(&mut self, on_event: OnEvent<'_>) -> Result<Ended, ProbeError> {
        if self.is_idle() {
            return Err(ProbeError::GaveUp { reason: "no probe was begun".to_owned() });
        }
        let ended = match &mut self.kind {
            Kind::One(prober) => {
                let order = self.running[0].take().ok_or_else(gone)?;
                let stop = || is_set(self.stop);
                let number = order.number;
                let told = undisturbed(prober.as_mut(), &order, stop, &mut |news| pass_on(number, news, on_event));
                return told.map(|outcome| Ended { slot: 0, outcome: Some(outcome) });
            }
            Kind::Many { shared, told, .. } => loop {
                let Ok((slot, told)) = told.recv() else { break Err(gone()) };
                let number = self.running[slot].as_ref().map_or(0, |order| order.number);
                match told {
                    Told::Ended(ended) => {
                        self.running[slot] = None;
                        let are_others = (0..self.open.len()).any(|at| at != slot && !self.lost[at]);
                        match *ended {
                            Err(error) if error.is_of_the_place() && (are_others || error.is_late()) => {
                                self.is_out_of_time = !are_others;
                                let host = |at: usize| shared.probers.get(at)?.0.as_ref().map(|slot| &slot.host);
                                let is_known = (0..self.lost.len()).any(|at| self.lost[at] && host(at) == host(slot));
                                if !is_known {
                                    let text = format!("{error}; what ran there is tried elsewhere");
                                    on_event(Event::Remark { text: &text });
                                }
                                (self.lost[slot], self.open[slot]) = (true, false);
                                // Where one runs at a time, another takes its place.
                                let home = self.lost.iter().position(|lost| !lost);
                                if let Some(home) = home.filter(|_| !self.open.contains(&true)) {
                                    self.open[home] = true;
                                }
                                break Ok(Ended { slot, outcome: None });
                            }
                            ended => break ended.map(|outcome| Ended { slot, outcome: Some(outcome) }),
                        }
                    }
                    Told::Lost => {
                        self.running[slot] = None;
                        break Err(gone());
                    }
                    Told::Gone => {}
                    Told::Progress(progress) => pass_on(number, News::Progress(&progress), on_event),
                    Told::Disturbed(reason) => pass_on(number, News::Disturbed(&reason), on_event),
                    Told::Remark(text) => pass_on(number, News::Remark(&text), on_event),
                }
            },
        };
        if ended.is_err() {
            self.end_all();
        }
        ended
    }

    /// Runs a probe in the first slot, while nothing else runs.
    ///
    /// # Errors
    /// Probing is impossible.
    pub(super) fn run(&mut self, order: Order, on_event: OnEvent<'_>) -> Result<Outcome, ProbeError> {
        loop {
            self.start(self.home(), order.clone());
            if let Some(outcome) = self.next(on_event)?.outcome {
                return Ok(outcome);
            }
            if self.is_out_of_time {
                return Ok(Outcome::Interrupted);
            }
        }
    }

    /// Compares configs in the first slot, while nothing runs; returns what there is to be said of it, too.
    ///
    /// # Errors
    /// Probing is impossible.
    pub(super) fn duel(
        &mut self,
        duel: &Duel<'_>,
        watch: DuelWatch<'_>,
    ) -> Result<(Option<Duelled>, Vec<String>), ProbeError> {
        let home = self.home();
        match &mut self.kind {
            Kind::One(prober) => {
                let duelled = prober.duel(duel, watch)?;
                Ok((duelled, prober.remarks()))
            }
            Kind::Many { shared, .. } => {
                let mut prober = shared.probers.get(home).map(|(_, prober)| locked(prober));
                let prober = prober.as_mut().and_then(|prober| prober.as_mut()).ok_or_else(gone)?;
                let duelled = prober.duel(duel, watch)?;
                Ok((duelled, prober.remarks()))
            }
        }
    }

    /// Ends everything that is under way.
    fn end_all(&mut self) {
        let Kind::Many { shared, told, .. } = &self.kind else { return };
        shared.is_over.store(true, Ordering::Relaxed);
        while self.running.iter().any(Option::is_some) {
            match told.recv() {
                Ok((slot, Told::Ended(_) | Told::Lost)) => self.running[slot] = None,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}

impl Drop for Slots<'_, '_> {
    fn drop(&mut self) {
        self.end_all();
    }
}

fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

fn gone() -> ProbeError {
    ProbeError::GaveUp { reason: "a slot is gone".to_owned() }
}

fn pass_on(number: u32, news: News<'_>, on_event: OnEvent<'_>) {
    on_event(match news {
        News::Progress(progress) => Event::Progress { number, progress },
        News::Disturbed(reason) => Event::Disturbed { number, reason },
        News::Remark(text) => Event::Remark { text },
    });
}

/// Runs what is ordered until nobody can order any more.
fn serve(
    prober: &Kept<'_>,
    orders: &Receiver<Order>,
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
        let ended = undisturbed(prober.as_mut(), &order, &stop, &mut |news| {
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
        if told.send((at, Told::Ended(Box::new(ended)))).is_err() {
            break;
        }
    }
    // What it holds ends before this thread does.
    drop(locked(prober).take());
    let _ = told.send((at, Told::Gone));
}
