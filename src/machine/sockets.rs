//! Finds the process that listens on a port.

use std::fs;

/// Returns a process that listens on a TCP port of this machine, if it can be seen.
///
/// `/proc/net/tcp` has a line for each socket (proc(5)): the local address and port in hexadecimal, the state, and the inode. The
/// processes of other users hide their files.
pub(crate) fn listener(port: u16) -> Option<u32> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| table.lines().filter_map(|line| inode_of_listener(line, port)).collect::<Vec<_>>())
        .collect();
    let processes =
        fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    processes.into_iter().find(|pid| !inodes.is_empty() && has_socket(*pid, &inodes))
}

/// Returns the inode of a line of the table, if its socket listens on the port.
fn inode_of_listener(line: &str, port: u16) -> Option<String> {
    const LISTENS: &str = "0A";
    let mut words = line.split_whitespace();
    let (_, local) = words.nth(1)?.rsplit_once(':')?;
    let state = words.nth(1)?;
    let is_it = state == LISTENS && u16::from_str_radix(local, 16) == Ok(port);
    words.nth(5).filter(|_| is_it).map(|inode| format!("socket:[{inode}]"))
}

/// Whether one of the files that a process has open is one of these sockets.
fn has_socket(pid: u32, sockets: &[String]) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    targets.into_iter().any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
}
