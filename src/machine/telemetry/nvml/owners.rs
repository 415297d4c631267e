//! Decides which processes on a GPU belong to the probe.

use std::collections::HashMap;

use crate::machine::process_table::{self, descendants, numbers_inside, parent};

/// The owner of a process on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Owner {
    /// The probe.
    Own,
    /// Another program.
    Foreign,
    /// The process id is unknown here: the process is outside this container, or the driver is mistaken.
    Unseen,
}

/// Distinguishes the processes of one probe from other processes.
#[derive(Debug)]
pub(super) struct Owners {
    root: u32,
    known: HashMap<u32, (Owner, String)>,
}

impl Owners {
    /// Makes the owners for the probe that consists of the process `root` and its descendants.
    pub(super) fn below(root: u32) -> Self {
        Self { root, known: HashMap::new() }
    }

    /// Records a process while it can be seen; its owner stays known after its end.
    pub(super) fn see(&mut self, pid: u32) {
        if !self.known.contains_key(&pid) {
            let owner = owner_of(pid, self.root);
            self.known.insert(pid, (owner, process_table::named(pid)));
        }
    }

    pub(super) fn of(&self, pid: u32) -> Owner {
        self.known.get(&pid).map_or(Owner::Unseen, |(owner, _)| owner.clone())
    }

    pub(super) fn name(&self, pid: u32) -> String {
        match self.known.get(&pid) {
            Some((Owner::Unseen, name)) => format!("{name}, which cannot be seen from here,"),
            Some((_, name)) => name.clone(),
            None => format!("process {pid}"),
        }
    }
}

/// Finds the owner of a process. A driver may report the number of a process inside or outside its container.
fn owner_of(pid: u32, root: u32) -> Owner {
    let mut ancestor = pid;
    let mut is_seen = false;
    // No tree of processes is this deep. The bound is needed because reused process ids could make the climb endless.
    for _ in 0..1000 {
        if ancestor == root {
            return Owner::Own;
        }
        match parent(ancestor) {
            Some(above) => (ancestor, is_seen) = (above, true),
            None => break,
        }
    }
    let is_inside = || descendants(root).into_iter().any(|own| numbers_inside(own).contains(&pid));
    match is_seen {
        _ if is_inside() => Owner::Own,
        true => Owner::Foreign,
        false => Owner::Unseen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_descends_from_the_probe_is_its_own() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let own = std::process::id();
        let mut owners = Owners::below(own);
        for pid in [own, child.id(), 1, u32::MAX] {
            owners.see(pid);
        }
        assert_eq!((owners.of(own), owners.of(child.id())), (Owner::Own, Owner::Own));
        assert_eq!((owners.of(1), owners.of(u32::MAX)), (Owner::Foreign, Owner::Unseen));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(owners.of(child.id()), Owner::Own, "it was seen while it ran");
        assert!(owners.name(1).starts_with("process 1"), "{}", owners.name(1));
    }
}
