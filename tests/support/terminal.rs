//! A terminal for tests: it runs a program, presses keys, and reads the screen.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Longer than any wait on a busy machine.
const DEADLINE: Duration = Duration::from_secs(240);

pub(crate) struct Terminal {
    master: File,
    screen: Arc<Mutex<vt100::Parser>>,
    /// All bytes written to the terminal.
    written: Arc<Mutex<Vec<u8>>>,
    pub(crate) child: Child,
}

impl Terminal {
    /// Runs a command in a terminal of this many columns and rows.
    pub(crate) fn run(command: &Command, columns: u16, rows: u16) -> Self {
        let master: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let open = || OpenOptions::new().read(true).write(true).open(&name).unwrap();
        // Makes this the program's controlling terminal, as a shell does.
        let mut session = Command::new("setsid");
        session.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            session.current_dir(folder);
        }
        if !command.get_envs().any(|(name, _)| name == "TERM") {
            session.env("TERM", "xterm-256color");
        }
        session.env_remove("COLUMNS").env_remove("NO_COLOR");
        let child = session.stdin(Stdio::from(open())).stdout(Stdio::from(open())).stderr(Stdio::from(open())).spawn();
        let child = child.unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 1000)));
        let written = Arc::new(Mutex::new(Vec::new()));
        let master = File::from(master);
        let (mut reader, theirs, all) = (master.try_clone().unwrap(), Arc::clone(&screen), Arc::clone(&written));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Ends when the last program closes the terminal.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                theirs.lock().unwrap().process(&bytes[..count]);
                all.lock().unwrap().extend(&bytes[..count]);
            }
        });
        Self { master, screen, written, child }
    }

    pub(crate) fn press(&self, keys: &str) {
        (&self.master).write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(rows, columns);
        tcsetwinsize(&self.master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    }

    /// Returns the rows of the screen.
    pub(crate) fn rows(&self) -> Vec<String> {
        let screen = self.screen.lock().unwrap();
        let (_, columns) = screen.screen().size();
        screen.screen().rows(0, columns).map(|row| row.trim_end().to_owned()).collect()
    }

    pub(crate) fn text(&self) -> String {
        self.rows().join("\n")
    }

    /// Returns all text ever written to the terminal.
    pub(crate) fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// Waits until the screen meets a condition.
    pub(crate) fn wait_until(&mut self, what: &str, shows: impl Fn(&[String]) -> bool) {
        let begin = Instant::now();
        while !shows(&self.rows()) {
            assert!(begin.elapsed() < DEADLINE, "never: {what}\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn wait_for(&mut self, word: &str) {
        self.wait_until(word, |rows| rows.iter().any(|row| row.contains(word)));
    }

    /// Waits for the end of the program and its last output.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                std::thread::sleep(Duration::from_millis(100));
                return status;
            }
            assert!(begin.elapsed() < DEADLINE, "it does not end\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns true if the terminal echoes keys and reads lines, as a shell's user expects.
    pub(crate) fn is_as_before(&self) -> bool {
        let modes = tcgetattr(&self.master).unwrap();
        modes.local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
            && !self.screen.lock().unwrap().screen().hide_cursor()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
