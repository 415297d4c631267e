//! The places where probes run: one place in this thread, or several slots, each with its own prober and thread.
//!
//! A slot's thread lives as long as the slot, because a process may ask to die with the thread that started it (prctl(2),
//! `PR_SET_PDEATHSIG`).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use super::request::{Arrivals, Done, InSlot, OnEvent, Request, Told, Work, serve};
use crate::model::{Config, Event, Outcome, Slot};
use crate::probe::{Holds, ProbeError, Prober};

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

pub(super) struct Slots<'s, 'p> {
    kind: Kind<'s, 'p>,
    stop: &'s AtomicBool,
    /// The time at which everything is cut short, so that the search ends in time.
    deadline: Option<Instant>,
    places: Vec<Place>,
    /// The hosts whose loss was reported, and that have not returned.
    lost_hosts: BTreeSet<String>,
    /// `Some` if a new slot may join now; true if it takes part at once.
    pub(super) welcomes: Option<bool>,
    /// True if the last slots were lost because their allocation ends.
    pub(super) is_out_of_time: bool,
    /// The processes that the prober of the last work keeps.
    pub(super) holds: Holds,
    /// The configs of the last round, if no probe came after it.
    in_round: Vec<Config>,
}

#[derive(Default)]
struct Place {
    /// The slot that a trial records; `None` for the whole machine.
    slot: Option<Slot>,
    /// The channel to the slot's thread.
    orders: Option<Sender<Work>>,
    running: Option<Work>,
    /// True if it takes part.
    is_open: bool,
    /// True if it is gone or was ended.
    is_lost: bool,
}

enum Kind<'s, 'p> {
    One(Box<dyn Prober + 'p>),
    Many(Box<Many<'s, 'p>>),
}

/// Starts a thread for a slot's prober, and returns the channel for its work. The `usize` is the slot's index.
type Spawn<'s, 'p> = dyn Fn(Box<dyn Prober + Send + 'p>, usize) -> Sender<Work> + 's;

struct Many<'s, 'p> {
    told: Receiver<(usize, Told)>,
    spawn: Box<Spawn<'s, 'p>>,
    arrivals: Option<Arrivals<'p>>,
    /// Set to stop all running probes, because the search ends.
    is_over: &'s AtomicBool,
}

impl<'s, 'p> Slots<'s, 'p> {
    pub(super) fn one(prober: Box<dyn Prober + 'p>, stop: &'s AtomicBool, deadline: Option<Instant>) -> Self {
        let mut slots = Self::of(Kind::One(prober), stop, deadline);
        slots.places.push(Place { is_open: true, ..Place::default() });
        slots
    }

    /// Starts a thread for each prober, and for each prober that joins later. The threads end when this is dropped. At first only
    /// the first slot takes part.
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
        let many = Many { told, spawn: Box::new(spawn), arrivals, is_over };
        let mut slots = Self::of(Kind::Many(Box::new(many)), stop, deadline);
        for prober in probers {
            slots.add(prober, slots.places.is_empty());
        }
        slots
    }

    fn of(kind: Kind<'s, 'p>, stop: &'s AtomicBool, deadline: Option<Instant>) -> Self {
        Self {
            kind,
            stop,
            deadline,
            places: Vec::new(),
            lost_hosts: BTreeSet::new(),
            welcomes: None,
            is_out_of_time: false,
            holds: Holds::Processes,
            in_round: Vec::new(),
        }
    }

    fn add(&mut self, (slot, prober): InSlot<'p>, is_open: bool) {
        let Kind::Many(many) = &self.kind else { return };
        let orders = Some((many.spawn)(prober, self.places.len()));
        self.places.push(Place { slot, orders, is_open, ..Place::default() });
    }

    /// Returns the number of slots, lost slots included.
    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    pub(super) fn there(&self) -> usize {
        self.places.iter().filter(|place| !place.is_lost).count()
    }

    pub(super) fn may_grow(&self) -> bool {
        matches!(&self.kind, Kind::Many(many) if many.arrivals.is_some())
    }

    pub(super) fn open(&self) -> usize {
        self.places.iter().filter(|place| place.is_open).count()
    }

    /// Lets slots take part, or not. A lost slot never does.
    pub(super) fn set_open(&mut self, slots: impl IntoIterator<Item = usize>, is_open: bool) {
        for slot in slots {
            let place = &mut self.places[slot];
            place.is_open = is_open && !place.is_lost;
        }
    }

    /// Returns the slot for probes that must run alone: the first that is not lost.
    pub(super) fn home(&self) -> usize {
        self.places.iter().position(|place| !place.is_lost).unwrap_or(0)
    }

    /// Returns the slots that are not lost. Excludes a first slot with the whole machine, unless it is the only slot.
    pub(super) fn parts(&self) -> Vec<usize> {
        let first = usize::from(self.slot(0).is_none()).min(self.count() - 1);
        (first..self.count()).filter(|&at| !self.places[at].is_lost).collect()
    }

    pub(super) fn open_parts(&mut self) {
        self.set_open([self.home()], false);
        self.set_open(self.parts(), true);
    }

    /// Opens the first slot that is not lost, and closes all other slots. Call it only while no probe runs.
    ///
    /// Other slots on its machine end, with the processes that they keep. Slots on other machines stay, in case the first is
    /// lost.
    pub(super) fn leave_the_first(&mut self) {
        self.leave_only(&[self.home()]);
    }

    /// Opens these slots, and closes all other slots. Call it only while no probe runs. Other slots on their machines end, except
    /// [`home`](Self::home).
    pub(super) fn leave_only(&mut self, left: &[usize]) {
        let home = self.home();
        self.set_open(0..self.count(), false);
        self.set_open(left.iter().copied(), true);
        let host = |at: usize| self.slot(at).map(|slot| &slot.host);
        let is_beside = |at: usize| left.iter().any(|&other| host(other).is_none() || host(at) == host(other));
        let beside: Vec<usize> =
            (0..self.count()).filter(|at| *at != home && !left.contains(at) && is_beside(*at)).collect();
        let Kind::Many(many) = &self.kind else { return };
        let mut ending = Vec::new();
        for at in beside {
            self.places[at].is_lost = true;
            ending.extend(self.places[at].orders.take().map(|_| at));
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
        self.places.get(at)?.slot.as_ref()
    }

    pub(super) fn free(&self) -> Vec<usize> {
        let is_free = |place: &Place| place.is_open && place.running.is_none();
        (0..self.count()).filter(|&at| is_free(&self.places[at])).collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.places.iter().all(|place| place.running.is_none())
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
        let place = &mut self.places[slot];
        if let Some(orders) = &place.orders {
            // Ignore a failed send: the ended thread has already reported its end.
            let _ = orders.send(work.clone());
        }
        place.running = Some(work);
    }

    /// Waits until a probe is over, or a slot has joined. Fails if probing is impossible; then all probes are over.
    pub(super) fn next(&mut self, on_event: OnEvent<'_>) -> Result<Ended, ProbeError> {
        if self.is_idle() {
            return Err(ProbeError::GaveUp { reason: "no probe was started".to_owned() });
        }
        let ended = match &mut self.kind {
            Kind::One(prober) => {
                let order = self.places[0].running.take().ok_or_else(gone)?;
                let stop = || is_set(self.stop) || is_past(self.deadline);
                let told = order.run(prober.as_mut(), stop, on_event);
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
            match told {
                Told::Ended(ended, holds) => {
                    self.places[slot].running = None;
                    self.holds = holds;
                    return match *ended {
                        // Only this node failed, so other nodes can continue.
                        Err(error @ (ProbeError::Lost { .. } | ProbeError::NoTime { .. })) => {
                            self.lose(slot, error, on_event)
                        }
                        ended => ended.map(|done| Ended { slot, done: Some(done) }),
                    };
                }
                Told::Lost => {
                    self.places[slot].running = None;
                    return Err(gone());
                }
                Told::Gone => {}
                Told::Progress(number, progress) => on_event(Event::Progress { number, progress: &progress }),
                Told::Remark(text) => on_event(Event::Remark { text: &text }),
                Told::Warning(text) => on_event(Event::Warning { text: &text }),
            }
        }
    }

    /// Adds a slot that has arrived, if slots may join now.
    fn joined(&mut self, on_event: OnEvent<'_>) -> Option<usize> {
        let Kind::Many(many) = &mut self.kind else { return None };
        let arrivals = many.arrivals.as_mut()?;
        arrivals.look(on_event);
        let is_open = self.welcomes?;
        let (slot, prober) = arrivals.waiting.pop_front()?;
        if let Some(slot) = &slot {
            on_event(Event::Remark { text: &format!("{slot} on {} has joined", slot.host) });
            self.lost_hosts.remove(&slot.host);
        }
        self.add((slot, prober), is_open);
        Some(self.count() - 1)
    }

    /// Records that a slot is gone. If it was the last, waits for another slot, and fails if none arrives in time.
    fn lose(&mut self, slot: usize, error: ProbeError, on_event: OnEvent<'_>) -> Result<Ended, ProbeError> {
        let are_others = (0..self.count()).any(|at| at != slot && !self.places[at].is_lost);
        let is_out_of_time = !are_others && matches!(error, ProbeError::NoTime { .. });
        if !(are_others || is_out_of_time || self.may_grow()) {
            return Err(error);
        }
        let place = &mut self.places[slot];
        (place.orders, place.is_open, place.is_lost) = (None, false, true);
        // The slots of a host are lost together. One remark is enough.
        if place.slot.as_ref().is_none_or(|slot| self.lost_hosts.insert(slot.host.clone())) {
            on_event(Event::Remark { text: &format!("{error}; its probes are repeated in other slots") });
        }
        // If probes run one at a time, another slot takes over.
        if are_others && self.open() == 0 {
            self.set_open([self.home()], true);
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

    /// Runs a probe in the first slot, while nothing else runs. Fails if probing is impossible.
    pub(super) fn run(&mut self, request: Request, on_event: OnEvent<'_>) -> Result<Outcome, ProbeError> {
        loop {
            let home = self.home();
            self.start(home, Work::Probe(Box::new(request.clone())));
            while self.places[home].running.is_some() {
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
        while !self.is_idle() {
            match many.told.recv() {
                Ok((slot, Told::Ended(..) | Told::Lost)) => self.places[slot].running = None,
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

#[cfg(test)]
mod tests {
    use super::super::request::Arrival;
    use super::*;
    use crate::probe::{Job, Watch};

    struct Idle;

    impl Prober for Idle {
        fn probe(&mut self, _job: &Job, _watch: Watch<'_>) -> Result<Outcome, ProbeError> {
            Err(gone())
        }
    }

    #[test]
    fn the_loss_of_a_host_is_reported_once_and_again_after_its_return() {
        let slot = |number, host: &str| Slot { host: host.to_owned(), ..Slot::numbered(number) };
        let in_slot = |(number, host)| -> InSlot<'static> { (Some(slot(number, host)), Box::new(Idle)) };
        let probers = [(1, "one"), (2, "one"), (3, "two")].map(in_slot);
        let mut returns = Some(Arrival::Slot(slot(1, "one"), Box::new(Idle)));
        let arrivals = Arrivals::from(Box::new(move || returns.take()));
        let (stop, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut remarks = Vec::new();
        let mut hear = |event: Event<'_>| {
            if let Event::Remark { text } = event {
                remarks.push(text.to_owned());
            }
        };
        std::thread::scope(|scope| {
            let mut slots = Slots::many(probers.into(), Some(arrivals), scope, &stop, &is_over, None);
            slots.welcomes = Some(true);
            let lost = || ProbeError::Lost { host: "one".to_owned(), reason: "it has ended".to_owned() };
            for at in [0, 1] {
                slots.lose(at, lost(), &mut hear).unwrap();
            }
            let again = slots.joined(&mut hear).unwrap();
            slots.lose(again, lost(), &mut hear).unwrap();
        });
        let starts = ["the worker on one is gone", "slot 1 on one has joined", "the worker on one is gone"];
        assert_eq!(remarks.len(), starts.len(), "{remarks:?}");
        assert!(remarks.iter().zip(starts).all(|(remark, start)| remark.starts_with(start)), "{remarks:?}");
    }
}
