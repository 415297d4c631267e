//! Reads the processes, their parents and their sockets from `/proc`.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::str::SplitWhitespace;

/// The kernel's state letter of a process that has ended but that its parent has not waited for.
const ZOMBIE: char = 'Z';

pub(crate) fn all() -> Vec<u32> {
    all_in(Path::new("/proc")).collect()
}

/// Returns the processes that a folder like `/proc` lists.
fn all_in(proc: &Path) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns all living descendants of a process, parents before children, without zombies.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    descendants_in(Path::new("/proc"), root, false)
}

/// Returns the descendants of a process in a folder like `/proc`, parents before children.
pub(crate) fn descendants_in(proc: &Path, root: u32, with_zombies: bool) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<(u32, char)>> = HashMap::new();
    for pid in all_in(proc) {
        if let Some((parent, state)) = Stat::read(proc, pid).and_then(|stat| stat.parent_and_state()) {
            children.entry(parent).or_default().push((pid, state));
        }
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for &(pid, state) in children.get(&parent).into_iter().flatten() {
            open.push(pid);
            if with_zombies || state != ZOMBIE {
                found.push(pid);
            }
        }
    }
    found
}

/// Returns the children of this process, from its threads' lists (`/proc/PID/task/TID/children`, proc(5)). Returns
/// nothing if the kernel was built without the lists. This costs far less than reading all processes.
pub(crate) fn own_children() -> Vec<u32> {
    children_in(Path::new("/proc/self/task"))
}

/// Returns the children of all threads of a process, from its folder `task`.
pub(crate) fn children_in(task: &Path) -> Vec<u32> {
    let threads = fs::read_dir(task).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()).collect()
}

/// Returns the CPU time of a process in clock ticks, with or without the children that it has waited for.
pub(crate) fn processor_ticks(pid: u32, with_children: bool) -> Option<u64> {
    Stat::of(pid)?.ticks(with_children)
}

/// Returns the CPUs that a process may run on (proc(5), `Cpus_allowed_list`); `pid` is a number or `self`.
pub(crate) fn allowed_processors(pid: &str) -> Option<BTreeSet<u32>> {
    status(pid)?.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(numbers)
}

/// Returns the numbers of a list like `0-3,8`.
pub(crate) fn numbers(list: &str) -> BTreeSet<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// Returns a process's start in clock ticks since boot (proc(5)); a later process with its number has another.
pub(crate) fn started(pid: u32) -> Option<u64> {
    const START_TIME: usize = 22;
    Stat::of(pid)?.number(START_TIME)
}

/// Returns the command line of a process, shortened for a message.
pub(crate) fn command(pid: u32) -> Option<String> {
    const WIDTH: usize = 80;
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line).replace(char::is_control, " ");
    Some(line.trim().chars().take(WIDTH).collect()).filter(|line: &String| !line.is_empty())
}

/// Formats a process for a message: its number, and its command line if visible.
pub(crate) fn named(pid: u32) -> String {
    match command(pid) {
        Some(command) => format!("process {pid} (`{command}`)"),
        None => format!("process {pid}"),
    }
}

pub(crate) fn parent(pid: u32) -> Option<u32> {
    parent_and_state(pid).map(|(parent, _)| parent)
}

/// Returns the ids of a process, from the outermost PID namespace to its own (`NSpid` in `status`, proc(5), Linux 4.1).
pub(crate) fn numbers_inside(pid: u32) -> Vec<u32> {
    let status = status(pid).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// Returns true if a process was stopped by a signal and has not been continued.
pub(crate) fn is_stopped(pid: u32) -> bool {
    parent_and_state(pid).is_some_and(|(_, state)| matches!(state, 'T' | 't'))
}

/// Returns true if the process that [`started`] at `began` has ended, even if its parent has not waited for it.
pub(crate) fn has_ended(pid: u32, began: Option<u64>) -> bool {
    began.is_none() || started(pid) != began || parent_and_state(pid).is_none_or(|(_, state)| state == ZOMBIE)
}

/// Returns true if a process has ended, or is about to end because of a signal that it cannot block.
pub(crate) fn is_ending(pid: u32) -> bool {
    let Some(status) = status(pid) else { return true };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let pending = |name: &str| field(name).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    const KILL: u64 = 1 << 8;
    field("State:").is_some_and(|state| state.starts_with(['Z', 'X']))
        || (pending("SigPnd:") | pending("ShdPnd:")) & KILL != 0
        || is_exiting(pid)
}

/// Returns true if the kernel is tearing a process down (`PF_EXITING` in field 9 of `/proc/PID/stat`, linux/sched.h).
/// This takes a while if the process has much memory. No signal is pending then.
fn is_exiting(pid: u32) -> bool {
    const PF_EXITING: u64 = 4;
    const FLAGS: usize = 9;
    let Some(stat) = Stat::of(pid) else { return true };
    stat.number(FLAGS).is_some_and(|flags| flags & PF_EXITING != 0)
}

fn parent_and_state(pid: u32) -> Option<(u32, char)> {
    Stat::of(pid)?.parent_and_state()
}

/// Reads `/proc/PID/status`. The process's name in it need not be valid UTF-8: the kernel cuts it after 15 bytes.
fn status(pid: impl std::fmt::Display) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/status")).ok()?).into_owned())
}

/// The text of `/proc/PID/stat` (proc(5)).
pub(crate) struct Stat(String);

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::read(Path::new("/proc"), pid)
    }

    /// Reads the text in a folder like `/proc`; the name of a process need not be valid UTF-8.
    pub(crate) fn read(proc: &Path, pid: u32) -> Option<Self> {
        let text = fs::read(proc.join(format!("{pid}/stat"))).ok()?;
        Some(Self(String::from_utf8_lossy(&text).into_owned()))
    }

    /// Returns the fields from 3 on; the name in field 2 may contain spaces and parentheses.
    fn fields(&self) -> Option<SplitWhitespace<'_>> {
        Some(self.0[self.0.rfind(')')? + 1..].split_whitespace())
    }

    fn field(&self, number: usize) -> Option<&str> {
        self.fields()?.nth(number - 3)
    }

    fn number(&self, field: usize) -> Option<u64> {
        self.field(field)?.parse().ok()
    }

    fn parent_and_state(&self) -> Option<(u32, char)> {
        Some((self.field(4)?.parse().ok()?, self.field(3)?.chars().next()?))
    }

    /// Returns the CPU time in clock ticks, with or without the children that it has waited for (fields 14 to 17).
    pub(crate) fn ticks(&self, with_children: bool) -> Option<u64> {
        const USER_TIME: usize = 14;
        let count = if with_children { 4 } else { 2 };
        let fields = self.fields()?.skip(USER_TIME - 3).take(count);
        let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        (ticks.len() == count).then(|| ticks.iter().sum())
    }
}

/// Returns a process that listens on a TCP port of this machine, if it can be seen.
///
/// `/proc/net/tcp` has a line for each socket (proc(5)): the local address and port in hexadecimal, the state, and the
/// inode. The processes of other users hide their files.
pub(crate) fn listener(port: u16) -> Option<u32> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| table.lines().filter_map(|line| inode_of_listener(line, port)).collect::<Vec<_>>())
        .collect();
    all().into_iter().find(|pid| !inodes.is_empty() && has_socket(*pid, &inodes))
}

/// Returns the inode in a line of the table, if its socket listens on the port.
fn inode_of_listener(line: &str, port: u16) -> Option<String> {
    const LISTENS: &str = "0A";
    let mut words = line.split_whitespace();
    let (_, local) = words.nth(1)?.rsplit_once(':')?;
    let state = words.nth(1)?;
    let is_it = state == LISTENS && u16::from_str_radix(local, 16) == Ok(port);
    words.nth(5).filter(|_| is_it).map(|inode| format!("socket:[{inode}]"))
}

fn has_socket(pid: u32, sockets: &[String]) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    targets.into_iter().any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_a_descendant_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        assert!(descendants(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!descendants(std::process::id()).contains(&child.id()));
    }

    #[test]
    fn a_process_whose_name_is_no_text_is_seen_as_well() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(std::ffi::OsStr::from_bytes(b"sl\xffeep"));
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(program).arg("30").spawn().unwrap();
        assert!(descendants(std::process::id()).contains(&child.id()));
        let began = started(child.id());
        assert!(began.is_some() && !has_ended(child.id(), began));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn lists_of_numbers_are_read() {
        assert_eq!(numbers("0-3,8\n"), BTreeSet::from([0, 1, 2, 3, 8]));
        assert_eq!((numbers("7").len(), numbers("").len()), (1, 0));
    }
}
