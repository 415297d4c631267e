//! The places where probes run: one place in this thread, or several slots, each with its own prober and thread.
//!
//! A thread lives as long as the search, because a process may ask to die with the thread that started it (prctl(2),
//! `PR_SET_PDEATHSIG`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use super::request::{Arrivals, Done, News, Request, Told, Work, serve};
use crate::model::{Config, Event, Outcome, Slot};
use crate::probe::{Holds, ProbeError, Prober};

/// The receiver of a search's events.
pub(super) type OnEvent<'e> = &'e mut dyn FnMut(Event<'_>);

/// A prober in a slot, or with the whole machine.
pub(super) type InSlot<'p> = (Option<Slot>, Box<dyn Prober + Send + 'p>);

/// A probe that is over.
pub(super) struct Ended {
    pub(super) slot: usize,
    /// `None` if a slot joined or is gone, which says nothing about a config.
    pub(super) done: Option<Done>,
}

/// How long a search without slots waits for a new slot. A cluster needs about as long to restart a pod, image included. A round
/// number.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// How often to look for new slots: often enough that users notice no delay.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The places where probes run.
pub(super) struct Slots<'s, 'p> {
    kind: Kind<'s, 'p>,
    stop: &'s AtomicBool,
    /// The time at which everything is cut short, so that the search ends in time.
    deadline: Option<Instant>,
    running: Vec<Option<Work>>,
    /// True for each slot that takes part. At first only the first slot does.
    open: Vec<bool>,
    /// True for each slot that is gone or was ended.
    lost: Vec<bool>,
    /// `Some` if a new slot may join now; true if it takes part at once.
    pub(super) welcomes: Option<bool>,
    /// True if the last slots went because their allocation ends.
    pub(super) is_out_of_time: bool,
    /// What the prober of the last work holds.
    pub(super) holds: Holds,
    /// The configs of the last round, if no probe came after it.
    in_round: Vec<Config>,
}

enum Kind<'s, 'p> {
    One(Box<dyn Prober + 'p>),
    Many(Box<Many<'s, 'p>>),
}

/// Starts a thread for a slot's prober, with the slot's place. Returns the channel for its work.
type Spawn<'s, 'p> = dyn Fn(Box<dyn Prober + Send + 'p>, usize) -> Sender<Work> + 's;

/// Slots with a thread each.
struct Many<'s, 'p> {
    places: Vec<Option<Slot>>,
    orders: Vec<Option<Sender<Work>>>,
    told: Receiver<(usize, Told)>,
    /// Starts the thread of a slot.
    spawn: Box<Spawn<'s, 'p>>,
    arrivals: Option<Arrivals<'p>>,
    /// Set when the search cannot go on, whatever is under way.
    is_over: &'s AtomicBool,
}

impl<'p> Many<'_, 'p> {
    fn add(&mut self, (slot, prober): InSlot<'p>) {
        self.orders.push(Some((self.spawn)(prober, self.places.len())));
        self.places.push(slot);
    }

    fn slot(&self, at: usize) -> Option<&Slot> {
        self.places.get(at)?.as_ref()
    }
}

impl<'s, 'p> Slots<'s, 'p> {
    /// One place, in this thread.
    pub(super) fn one(prober: Box<dyn Prober + 'p>, stop: &'s AtomicBool, deadline: Option<Instant>) -> Self {
        Self::of(Kind::One(prober), 1, stop, deadline)
    }

    /// Starts a thread for each prober, and for each prober that joins later. The threads end when this is dropped.
    pub(super) fn many<'scope>(
        probers: Vec<InSlot<'p>>,
        arrivals: Option<Arrivals<'p>>,
        scope: &'scope Scope<'scope, '_>,
        stop: &'scope AtomicBool,
        is_over: &'scope AtomicBool,
        deadline: Option<Instant>,
    ) -> Self
    where
        'scope: 's,
        'p: 'scope,
    {
        let (sender, told) = channel();
        let spawn = move |prober: Box<dyn Prober + Send + 'p>, at: usize| {
            let (orders, received) = channel();
            let sender = sender.clone();
            scope.spawn(move || {
                serve(prober, &received, &sender, at, || is_set(stop) || is_set(is_over) || is_past(deadline));
            });
            orders
        };
        let (places, orders) = (Vec::new(), Vec::new());
        let mut many = Many { places, orders, told, spawn: Box::new(spawn), arrivals, is_over };
        probers.into_iter().for_each(|prober| many.add(prober));
        let count = many.places.len();
        Self::of(Kind::Many(Box::new(many)), count, stop, deadline)
    }

    /// So many slots, of which the first takes part.
    fn of(kind: Kind<'s, 'p>, count: usize, stop: &'s AtomicBool, deadline: Option<Instant>) -> Self {
        Self {
            kind,
            stop,
            deadline,
            running: vec![None; count],
            open: (0..count).map(|at| at == 0).collect(),
            lost: vec![false; count],
            welcomes: None,
            is_out_of_time: false,
            holds: Holds::Processes,
            in_round: Vec::new(),
        }
    }

    /// Returns the number of slots, lost slots included.
    pub(super) fn count(&self) -> usize {
        self.running.len()
    }

    /// Returns the number of slots that are not lost.
    pub(super) fn there(&self) -> usize {
        self.lost.iter().filter(|lost| !**lost).count()
    }

    pub(super) fn may_grow(&self) -> bool {
        matches!(&self.kind, Kind::Many(many) if many.arrivals.is_some())
    }

    /// Returns the number of slots that take part now.
    pub(super) fn open(&self) -> usize {
        self.open.iter().filter(|open| **open).count()
    }

    /// Lets slots take part, or not. A lost slot never does.
    pub(super) fn set_open(&mut self, slots: impl IntoIterator<Item = usize>, is_open: bool) {
        slots.into_iter().for_each(|slot| self.open[slot] = is_open && !self.lost[slot]);
    }

    /// Returns the slot for probes that must run alone: the first that is not lost.
    pub(super) fn home(&self) -> usize {
        self.lost.iter().position(|lost| !lost).unwrap_or(0)
    }

    /// Returns the slots that are parts of the machine and not lost: all, unless the first has the whole machine.
    pub(super) fn parts(&self) -> Vec<usize> {
        let first = usize::from(self.slot(0).is_none()).min(self.count() - 1);
        (first..self.count()).filter(|&at| !self.lost[at]).collect()
    }

    pub(super) fn open_parts(&mut self) {
        self.set_open([self.home()], false);
        self.set_open(self.parts(), true);
    }

    /// Leaves only the first slot open, while nothing runs. Other slots on its machine end, and with them the processes that they keep.
    /// Slots on other machines stay, in case the first is lost.
    pub(super) fn leave_the_first(&mut self) {
        self.leave_only(&[self.home()]);
    }

    /// Leaves only some slots open, while nothing runs. Other slots on their machines end, except [`home`](Self::home).
    pub(super) fn leave_only(&mut self, left: &[usize]) {
        let home = self.home();
        self.set_open(0..self.running.len(), false);
        self.set_open(left.iter().copied(), true);
        let host = |at: usize| self.slot(at).map(|slot| &slot.host);
        let is_beside = |at: usize| left.iter().any(|&other| host(other).is_none() || host(at) == host(other));
        let beside: Vec<usize> =
            (0..self.count()).filter(|at| *at != home && !left.contains(at) && is_beside(*at)).collect();
        let Kind::Many(many) = &mut self.kind else { return };
        let mut ending = Vec::new();
        for at in beside {
            self.lost[at] = true;
            ending.extend(many.orders[at].take().map(|_| at));
        }
        while !ending.is_empty() {
            match many.told.recv() {
                Ok((slot, Told::Gone | Told::Lost)) => ending.retain(|at| *at != slot),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// Returns the slot that a trial records; `None` if there is only one place.
    pub(super) fn slot(&self, at: usize) -> Option<&Slot> {
        match &self.kind {
            Kind::One(_) => None,
            Kind::Many(many) => many.slot(at),
        }
    }

    pub(super) fn free(&self) -> Vec<usize> {
        (0..self.count()).filter(|&at| self.open[at] && self.running[at].is_none()).collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running.iter().all(Option::is_none)
    }

    /// Returns how many of these configs need a new process in a last round.
    pub(super) fn starts_of(&self, configs: &[Config]) -> u32 {
        let has_none = |config: &&Config| self.holds != Holds::Processes && !self.in_round.contains(config);
        u32::try_from(configs.iter().filter(has_none).count()).unwrap_or(u32::MAX)
    }

    pub(super) fn start(&mut self, slot: usize, work: Work) {
        self.in_round = match &work {
            Work::Probe(_) => Vec::new(),
            Work::Round(round) => round.requests.iter().map(Request::config).cloned().collect(),
        };
        if let Kind::Many(many) = &self.kind {
            // A thread that ended has reported its end.
            if let Some(orders) = &many.orders[slot] {
                let _ = orders.send(work.clone());
            }
        }
        self.running[slot] = Some(work);
    }

    /// Waits until a probe is over, or a slot has joined.
    ///
    /// # Errors
    /// Probing is impossible; then all probes are over.
    pub(super) fn next(&mut self, on_event: OnEvent<'_>) -> Result<Ended, ProbeError> {
        if self.is_idle() {
            return Err(ProbeError::GaveUp { reason: "no probe was started".to_owned() });
        }
        let ended = match &mut self.kind {
            Kind::One(prober) => {
                let order = self.running[0].take().ok_or_else(gone)?;
                let stop = || is_set(self.stop) || is_past(self.deadline);
                let number = order.number();
                let told = order.run(prober.as_mut(), stop, &mut |news| pass_on(number, news, on_event));
                self.holds = prober.holds();
                return told.map(|done| Ended { slot: 0, done: Some(done) });
            }
            Kind::Many(_) => self.next_of_many(on_event),
        };
        if ended.is_err() {
            self.end_all();
        }
        ended
    }

    fn next_of_many(&mut self, on_event: OnEvent<'_>) -> Result<Ended, ProbeError> {
        loop {
            if let Some(slot) = self.joined(on_event) {
                return Ok(Ended { slot, done: None });
            }
            let Kind::Many(many) = &mut self.kind else { return Err(gone()) };
            let told = if many.arrivals.is_some() {
                many.told.recv_timeout(LOOK_EVERY)
            } else {
                many.told.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            let (slot, told) = match told {
                Ok(told) => told,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            };
            let number = self.running[slot].as_ref().map_or(0, Work::number);
            match told {
                Told::Ended(ended, holds) => {
                    self.running[slot] = None;
                    self.holds = holds;
                    return match *ended {
                        Err(error) if error.is_of_the_place() => self.lose(slot, error, on_event),
                        ended => ended.map(|done| Ended { slot, done: Some(done) }),
                    };
                }
                Told::Lost => {
                    self.running[slot] = None;
                    return Err(gone());
                }
                Told::Gone => {}
                Told::Progress(progress) => pass_on(number, News::Progress(&progress), on_event),
                Told::Disturbed(reason) => pass_on(number, News::Disturbed(&reason), on_event),
                Told::Remark(text) => pass_on(number, News::Remark(&text), on_event),
            }
        }
    }

    /// Adds a slot that has arrived, if slots may join now.
    fn joined(&mut self, on_event: OnEvent<'_>) -> Option<usize> {
        let Kind::Many(many) = &mut self.kind else { return None };
        let arrivals = many.arrivals.as_mut()?;
        arrivals.look(on_event);
        let is_open = self.welcomes?;
        let (slot, prober) = arrivals.take()?;
        if let Some(slot) = &slot {
            on_event(Event::Remark { text: &format!("{slot} on {} has joined", slot.host) });
        }
        many.add((slot, prober));
        self.running.push(None);
        self.open.push(is_open);
        self.lost.push(false);
        Some(self.lost.len() - 1)
    }

    /// Records that a slot is gone. If it was the last, waits for another slot.
    ///
    /// # Errors
    /// No slot is left, and none arrives in time.
    fn lose(&mut self, slot: usize, error: ProbeError, on_event: OnEvent<'_>) -> Result<Ended, ProbeError> {
        let are_others = (0..self.open.len()).any(|at| at != slot && !self.lost[at]);
        let Kind::Many(many) = &mut self.kind else { return Err(error) };
        let is_out_of_time = !are_others && error.is_late();
        if !(are_others || is_out_of_time || many.arrivals.is_some()) {
            return Err(error);
        }
        many.orders[slot] = None;
        // The slots of a host are lost together, and may join again.
        let last = |at: usize| many.slot(at).map(|slot| (&slot.host, slot.number));
        let is_known = (0..self.lost.len())
            .any(|at| self.lost[at] && last(at).zip(last(slot)).is_some_and(|(a, b)| a.0 == b.0 && a.1 != b.1));
        if !is_known {
            on_event(Event::Remark { text: &format!("{error}; what ran there is tried elsewhere") });
        }
        (self.lost[slot], self.open[slot]) = (true, false);
        // If probes run one at a time, another slot takes over.
        let home = self.lost.iter().position(|lost| !lost);
        if let Some(home) = home.filter(|_| !self.open.contains(&true)) {
            self.open[home] = true;
        }
        if are_others || is_out_of_time {
            self.is_out_of_time = is_out_of_time;
            return Ok(Ended { slot, done: None });
        }
        on_event(Event::Remark { text: "no worker is left; the search waits for one" });
        let (begin, welcomes) = (Instant::now(), self.welcomes.replace(true));
        while begin.elapsed() < LONGEST_WAIT {
            if is_set(self.stop) {
                return Ok(Ended { slot, done: Some(Done::Probe(Box::new(Outcome::Interrupted))) });
            }
            if self.joined(on_event).is_some() {
                self.welcomes = welcomes;
                return Ok(Ended { slot, done: None });
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(error)
    }

    /// Runs a probe in the first slot, while nothing else runs.
    ///
    /// # Errors
    /// Probing is impossible.
    pub(super) fn run(&mut self, request: Request, on_event: OnEvent<'_>) -> Result<Outcome, ProbeError> {
        loop {
            let home = self.home();
            self.start(home, Work::Probe(Box::new(request.clone())));
            while self.running[home].is_some() {
                let ended = self.next(on_event)?;
                if let Some(Done::Probe(outcome)) = ended.done.filter(|_| ended.slot == home) {
                    return Ok(*outcome);
                }
            }
            if self.is_out_of_time {
                return Ok(Outcome::Interrupted);
            }
        }
    }

    fn end_all(&mut self) {
        let Kind::Many(many) = &self.kind else { return };
        many.is_over.store(true, Ordering::Relaxed);
        while self.running.iter().any(Option::is_some) {
            match many.told.recv() {
                Ok((slot, Told::Ended(..) | Told::Lost)) => self.running[slot] = None,
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

fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
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
