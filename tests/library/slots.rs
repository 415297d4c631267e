//! Searches with several steps side by side.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gputune::model::{Estimate, Event, Measurement, Outcome, Parameter, Settings, Slot, Space, Trial};
use gputune::probe::{Job, ProbeError, Prober, Step, StepError, TrainingStep, Watch};
use gputune::search::{Arrival, Budget, Study, Tuner};

/// The shared state of a search's steps.
#[derive(Default)]
struct Machine {
    /// The running steps, and their maximum so far.
    running: AtomicU32,
    most: AtomicU32,
    /// Tickets for a scarce resource: the next ticket, and the number of finished steps.
    tickets: AtomicU32,
    turn: AtomicU32,
    /// The number of steps that can use the scarce resource at a time.
    room: Option<u32>,
    is_compared: bool,
    /// The slot that fails every config from this number on.
    sick: Option<(u32, u32)>,
}

impl Machine {
    /// Returns the time of a step. Compared slots need steps that are long next to a busy machine's delays.
    fn step(&self) -> Duration {
        Duration::from_millis(if self.is_compared { 8 } else { 2 })
    }
}

struct Training<'m> {
    slot: u32,
    prepared: u32,
    machine: &'m Machine,
}

impl TrainingStep for Training<'_> {
    fn prepare(&mut self, _settings: &Settings) -> Result<(), StepError> {
        self.prepared += 1;
        match self.machine.sick {
            Some((slot, from)) if slot == self.slot && self.prepared >= from => {
                Err(StepError::Failed("the device has fallen off the bus".into()))
            }
            _ => Ok(()),
        }
    }

    fn step(&mut self, settings: &Settings) -> Result<Step, StepError> {
        let machine = self.machine;
        let now = machine.running.fetch_add(1, Ordering::SeqCst) + 1;
        machine.most.fetch_max(now, Ordering::SeqCst);
        if let Some(room) = machine.room {
            let ticket = machine.tickets.fetch_add(1, Ordering::SeqCst);
            while ticket >= machine.turn.load(Ordering::SeqCst) + room {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        std::thread::sleep(machine.step());
        machine.turn.fetch_add(1, Ordering::SeqCst);
        machine.running.fetch_sub(1, Ordering::SeqCst);
        Ok(Step::new(settings.integer("batch").unwrap().unsigned_abs()))
    }
}

fn search(machine: &Machine, slots: u32, remarks: &mut Vec<String>) -> Study {
    search_in(Space::new([Parameter::range("batch", 1, 16, 1)]).unwrap(), machine, slots, remarks)
}

fn search_in(space: Space, machine: &Machine, slots: u32, remarks: &mut Vec<String>) -> Study {
    let budget = Budget { probes: 16, rounds: 1, least_gain: 0.0, ..Budget::default() };
    Tuner::slots(space, slots, |slot| Training { slot, prepared: 0, machine })
        .budget(budget)
        .strategy("random")
        .unwrap()
        .measure_time(machine.step() * 60)
        // A busy machine could make independent slots look as if they disturbed each other, so only some tests compare slots.
        .compare_slots(machine.is_compared)
        .run(|event| {
            if let Event::Remark { text } = event {
                remarks.push(text.to_owned());
            }
        })
        .unwrap()
}

fn slot_of(trial: &Trial) -> u32 {
    trial.slot.as_ref().unwrap().number
}

#[test]
fn probes_run_side_by_side_where_they_do_not_notice_each_other() {
    let (machine, mut remarks) = (Machine::default(), Vec::new());
    let study = search(&machine, 2, &mut remarks);
    assert_eq!(machine.most.load(Ordering::SeqCst), 2);
    let trials = study.history.trials();
    let mut numbers: Vec<u32> = trials.iter().map(|trial| trial.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), trials.len(), "each has a number of its own");
    assert!(trials.iter().any(|trial| slot_of(trial) == 2));
    assert_eq!(study.history.count_searched(), 16, "no config is lost, and none is probed twice");
    // Batches of nearly the same size may change places on a busy machine.
    assert!(study.settings(&study.best().unwrap().winner.config).integer("batch").unwrap() >= 8);
    let together: Duration = trials.iter().map(|trial| trial.elapsed).sum();
    assert!(study.history.elapsed() < together, "time that several ran counts once");
}

#[test]
fn slots_that_do_not_notice_each_other_are_found_to_be_as_good_as_alone() {
    // On a busy machine, some failures may be chance.
    let found = (0..20).any(|_| {
        let (machine, mut remarks) = (Machine { is_compared: true, ..Machine::default() }, Vec::new());
        let found = search(&machine, 2, &mut remarks).side_by_side.unwrap();
        found.starts_with("2 slots measure side by side")
    });
    assert!(found);
}

#[test]
fn a_config_that_only_loads_the_machine_is_not_recorded() {
    // On a busy machine, some failures may be chance.
    let mut studies = (0..20).map(|_| {
        let space = Space::new([Parameter::range("batch", 1, 8, 1), Parameter::values("workers", [0, 8])]).unwrap();
        let machine = Machine { is_compared: true, ..Machine::default() };
        search_in(space, &machine, 2, &mut Vec::new())
    });
    let compared = |study: &Study| study.side_by_side.as_ref().unwrap().contains("in the other slots");
    let study = studies.find(compared).expect("the slots were compared under load");
    let searched: BTreeSet<_> = study.history.searched().map(|trial| trial.config.clone()).collect();
    assert_eq!((searched.len(), study.history.count_searched()), (16, 16));
}

#[test]
fn probes_run_one_by_one_where_they_take_turns_at_something() {
    let (machine, mut remarks) = (Machine { room: Some(1), is_compared: true, ..Machine::default() }, Vec::new());
    let study = search(&machine, 2, &mut remarks);
    let found = study.side_by_side.as_deref().unwrap();
    assert!(found.starts_with("one probe at a time instead of 2"), "{found}");
    assert!(remarks.iter().any(|remark| remark == found));
    let searched: Vec<u32> = study.history.searched().map(slot_of).collect();
    assert_eq!((searched.len(), searched.iter().all(|slot| *slot == 1)), (16, true));
}

#[test]
fn half_of_the_slots_measure_side_by_side_where_there_is_room_for_so_many() {
    // On a busy machine, some failures may be chance.
    let found = (0..20).any(|_| {
        let (machine, mut remarks) = (Machine { room: Some(2), is_compared: true, ..Machine::default() }, Vec::new());
        let study = search(&machine, 4, &mut remarks);
        let found = study.side_by_side.unwrap();
        let used: std::collections::BTreeSet<u32> = study.history.searched().skip(1).map(slot_of).collect();
        let is_half = found.starts_with("2 of 4 slots measure side by side");
        let ratio = found
            .split("in 2 slots at once it is ")
            .nth(1)
            .and_then(|rest| rest.split('x').next()?.parse::<f64>().ok());
        assert!(!is_half || ratio.is_some_and(|ratio| ratio < 1.5), "alone is alone: {found}");
        assert!(!is_half || used == [1, 3].into(), "{found}: {used:?}");
        is_half
    });
    assert!(found);
}

#[test]
fn a_sick_slot_is_taken_out_and_its_configs_are_measured_elsewhere() {
    let (machine, mut remarks) = (Machine { sick: Some((2, 4)), ..Machine::default() }, Vec::new());
    let study = search(&machine, 2, &mut remarks);
    assert!(remarks.iter().any(|remark| remark.contains("slot 2 is taken out")), "{remarks:?}");
    for config in study.history.searched().map(|trial| &trial.config) {
        let measured = |trial: &Trial| matches!(trial.outcome, Outcome::Measured(_));
        assert!(study.history.of(config).any(measured), "{}", study.settings(config).line());
    }
}

#[test]
fn four_slots_have_four_probes_at_once() {
    let (machine, mut remarks) = (Machine::default(), Vec::new());
    let study = search(&machine, 4, &mut remarks);
    assert_eq!(machine.most.load(Ordering::SeqCst), 4);
    assert_eq!(study.history.count_searched(), 16);
}

#[test]
fn a_prober_that_gives_up_ends_all() {
    struct GivesUp(u32);
    impl TrainingStep for GivesUp {
        fn step(&mut self, _settings: &Settings) -> Result<Step, StepError> {
            self.0 += 1;
            std::thread::sleep(Duration::from_millis(1));
            if self.0 > 400 { Err(StepError::GiveUp("enough".to_owned())) } else { Ok(Step::new(1)) }
        }
    }
    let space = Space::new([Parameter::range("batch", 1, 64, 1)]).unwrap();
    let tuner = Tuner::slots(space, 2, |_| GivesUp(0)).measure_time(Duration::from_millis(100));
    assert!(tuner.run(|_| ()).unwrap_err().to_string().contains("probing is impossible"));
}

/// A prober on another machine, which is lost after this many probes.
struct Going {
    left: u32,
    rate: f64,
    host: &'static str,
}

impl Prober for Going {
    fn probe(&mut self, _job: &Job, _watch: Watch<'_>) -> Result<Outcome, ProbeError> {
        if self.left == 0 {
            return Err(ProbeError::Lost { host: self.host.to_owned(), reason: "its connection has ended".to_owned() });
        }
        self.left -= 1;
        let throughput = Some(Estimate::interval(self.rate, 0.99 * self.rate, 1.01 * self.rate));
        Ok(Outcome::Measured(Measurement { throughput, ..Measurement::default() }))
    }
}

#[test]
fn a_machine_that_goes_is_replaced_by_another_also_where_they_do_not_measure_side_by_side() {
    // If the second machine is half as fast, all probes run on the first machine until it is lost.
    for (rate, first, second) in [(50.0, 6, 400), (50.0, 400, 6), (100.0, 6, 400), (100.0, 400, 3), (100.0, 400, 0)] {
        let space = Space::new([Parameter::range("batch", 1, 16, 1)]).unwrap();
        let prober = |(number, host, left, rate)| {
            (Slot { host: String::from(host), ..Slot::numbered(number) }, Going { left, rate, host })
        };
        let budget = Budget { probes: 16, rounds: 1, least_gain: 0.0, ..Budget::default() };
        let probers = [(1, "one", first, 100.0), (2, "two", second, rate)].map(prober);
        let tuner = Tuner::with_slots(space, None, probers).budget(budget).strategy("random").unwrap();
        let study = tuner.run(|_event| ()).unwrap();
        assert_eq!(study.history.count_searched(), 16, "{rate}, {first}, {second}");
        let side_by_side = study.side_by_side.unwrap();
        assert_eq!(side_by_side.starts_with("one probe at a time"), rate < 100.0 || second == 0, "{side_by_side}");
    }
}

#[test]
fn slots_that_come_are_compared_with_those_that_are_there() {
    // The second slot joins after some probes, the first is lost and returns under its number. All slots measure side by side.
    for (first, left) in [(400, 400), (8, 400)] {
        let space = Space::new([Parameter::range("batch", 1, 40, 1)]).unwrap();
        let slot = |number, host: &str| Slot { host: host.to_owned(), ..Slot::numbered(number) };
        let budget = Budget { probes: 40, rounds: 0, least_gain: 0.0, ..Budget::default() };
        let mut asked = 0;
        let arrivals = move || {
            asked += 1;
            let going = |left, host| Box::new(Going { left, rate: 100.0, host });
            match asked {
                3 => Some(Arrival::Slot(slot(2, "two"), going(left, "two"))),
                4 => Some(Arrival::Remark("somebody was turned away".to_owned())),
                20 => Some(Arrival::Slot(slot(1, "one"), going(400, "one"))),
                _ => None,
            }
        };
        let one = (slot(1, "one"), Going { left: first, rate: 100.0, host: "one" });
        let tuner = Tuner::with_slots(space, None, [one]).arrivals(arrivals).budget(budget).strategy("random").unwrap();
        let mut remarks = Vec::new();
        let study = tuner.run(|event| {
            if let Event::Remark { text } = event {
                remarks.push(text.to_owned());
            }
        });
        let study = study.unwrap();
        assert_eq!(study.history.searched().count(), 40, "{remarks:?}");
        let hosts: BTreeSet<&str> =
            study.history.searched().filter_map(|trial| Some(trial.slot.as_ref()?.host.as_str())).collect();
        assert_eq!(hosts, ["one", "two"].into(), "{remarks:?}");
        assert!(study.side_by_side.unwrap().contains("slots measure side by side"), "{remarks:?}");
        assert!(remarks.iter().any(|text| text == "somebody was turned away"), "{remarks:?}");
    }
}
