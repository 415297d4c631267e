//! Which processes there are and whose children they are, from `/proc`.

use std::collections::HashMap;
use std::fs;

/// The state letter that the kernel gives a process that has ended and was not waited for.
const ZOMBIE: char = 'Z';

/// All living descendants of a process, parents before children; zombies are left out.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<(u32, char)>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if let Some((parent, state)) = parent_and_state(pid) {
            children.entry(parent).or_default().push((pid, state));
        }
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for &(pid, state) in children.get(&parent).into_iter().flatten() {
            open.push(pid);
            if state != ZOMBIE {
                found.push(pid);
            }
        }
    }
    found
}

/// Fields 4 and 3 of `/proc/PID/stat` (proc(5)); the name in field 2 may hold spaces and parentheses.
fn parent_and_state(pid: u32) -> Option<(u32, char)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
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
}
