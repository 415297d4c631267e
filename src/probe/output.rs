//! Reads a probe's output: copies its text to the log, keeps the last lines, and finds rates.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use regex::bytes::Regex;

use super::heard::Message;
use super::locked;
use super::printed::{find_rate, is_of_evaluation};
use super::terminal::PlainText;

/// The number of lines kept for error messages and for recognising failures. A round number: enough for several tracebacks.
const LAST_LINES: usize = 200;
/// The bytes of a line that are kept. The rest of a longer line is dropped.
const LINE_BYTES: usize = 8 * 1024;

pub(super) struct Output {
    state: Arc<State>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    bytes: AtomicU64,
    lines: Mutex<VecDeque<String>>,
    log_error: Mutex<Option<io::Error>>,
}

impl Output {
    pub(super) fn read(
        pipe: impl Read + Send + 'static,
        log: &Path,
        log_size: Option<u64>,
        pattern: Option<Regex>,
        messages: SyncSender<Message>,
    ) -> io::Result<Self> {
        let log = File::create(log)?;
        let state = Arc::new(State::default());
        let mut copier = Copier {
            plain: PlainText::default(),
            has_trained: false,
            log,
            left: log_size.unwrap_or(u64::MAX),
            pattern,
            line: Vec::new(),
            numbers: Vec::new(),
            state: Arc::clone(&state),
            messages,
        };
        let reader = std::thread::Builder::new().name("output".to_owned()).spawn(move || copier.run(pipe))?;
        Ok(Self { state, reader: Some(reader) })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.state.bytes.load(Ordering::Relaxed)
    }

    /// Returns true if all writing ends of the pipe are closed.
    pub(super) fn is_finished(&self) -> bool {
        self.reader.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(super) fn last_lines(&self) -> Vec<String> {
        locked(&self.state.lines).iter().cloned().collect()
    }

    /// Takes the error that left the log incomplete.
    pub(super) fn log_error(&self) -> Option<io::Error> {
        locked(&self.state.log_error).take()
    }
}

struct Copier {
    plain: PlainText,
    log: File,
    /// The bytes that the log may still receive.
    left: u64,
    pattern: Option<Regex>,
    line: Vec<u8>,
    numbers: Vec<f64>,
    /// True after the first rate of the training.
    has_trained: bool,
    state: Arc<State>,
    messages: SyncSender<Message>,
}

impl Copier {
    fn run(&mut self, mut pipe: impl Read) {
        let mut buffer = vec![0; 1 << 16];
        loop {
            match pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => self.take(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A pseudo-terminal fails with EIO after its last writer has closed it.
                Err(_) => break,
            }
        }
        self.end_line();
        self.send_numbers();
    }

    fn take(&mut self, bytes: &[u8]) {
        self.state.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let bytes = &self.plain.of(bytes);
        self.write_log(bytes);
        // A carriage return also ends a line: progress bars rewrite their line.
        for part in bytes.split_inclusive(|&byte| byte == b'\n' || byte == b'\r') {
            let ended = part.ends_with(b"\n") || part.ends_with(b"\r");
            let text = if ended { &part[..part.len() - 1] } else { part };
            let room = LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if ended {
                self.end_line();
            }
        }
        self.send_numbers();
    }

    fn send_numbers(&mut self) {
        if !self.numbers.is_empty() {
            let numbers = std::mem::take(&mut self.numbers);
            let _ = self.messages.send(Message::Readings { numbers, at: Instant::now() });
        }
    }

    /// Writes to the log. If that fails, the probe continues. Its output is still read, because otherwise the probe would block.
    fn write_log(&mut self, bytes: &[u8]) {
        let count = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        self.left -= count as u64;
        if count > 0
            && let Err(error) = self.log.write_all(&bytes[..count])
        {
            self.left = 0;
            *locked(&self.state.log_error) = Some(error);
        }
    }

    fn end_line(&mut self) {
        if self.line.iter().all(u8::is_ascii_whitespace) {
            self.line.clear();
            return;
        }
        let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
        let found = self.pattern.as_ref().and_then(|pattern| Some((find_rate(pattern, &line)?, pattern)));
        if let Some((number, pattern)) = found {
            // Rates of an evaluation count only before the first rate of the training.
            let is_training = !is_of_evaluation(pattern, &line);
            self.has_trained |= is_training;
            self.numbers.extend((is_training || !self.has_trained).then_some(number));
        }
        let mut lines = locked(&self.state.lines);
        if lines.len() == LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn read(text: &[u8], pattern: Option<&str>, log_size: Option<u64>) -> (Vec<u8>, Vec<String>, Vec<f64>) {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let (sender, receiver) = sync_channel(1000);
        let pattern = pattern.map(|pattern| Regex::new(pattern).unwrap());
        let mut output = Output::read(io::Cursor::new(text.to_vec()), &log, log_size, pattern, sender).unwrap();
        output.reader.take().unwrap().join().unwrap();
        let numbers = receiver.try_iter().flat_map(|message| match message {
            Message::Readings { numbers, .. } => numbers,
            _ => Vec::new(),
        });
        (std::fs::read(log).unwrap(), output.last_lines(), numbers.collect())
    }

    #[test]
    fn rates_of_an_evaluation_count_only_before_those_of_the_training() {
        let evaluated = b"eval 9 samples/s\ntrain 5 samples/s\neval 9 samples/s\ntrain 6 samples/s\n";
        assert_eq!(read(evaluated, Some(r"([0-9.]+) samples/s"), None).2, [9.0, 5.0, 6.0]);
    }

    #[test]
    fn rates_are_read_from_lines_and_progress_bars() {
        let text = b"epoch 1: 1,234.5 samples/s\r 99 samples/s\n1e3 samples/s\nnan samples/s\n";
        let (_, _, numbers) = read(text, Some(r"([0-9.,e]+|nan) samples/s"), None);
        assert_eq!(numbers, [1234.5, 99.0, 1000.0]);
        let moved =
            b"\x1b[1G\x1b[2K8 samples/s\x1b[1G\x1b[2K9 samples/s\x08\x08\x08\x08\x08\x08\x08\x08\x08\x0810 samples/s";
        let (_, lines, numbers) = read(moved, Some(r"([0-9]+) samples/s"), None);
        assert_eq!(numbers, [8.0, 9.0, 10.0], "{lines:?}");
    }

    #[test]
    fn memory_stays_bounded_and_a_log_can_be_too() {
        let mut text = b"y".repeat(3 * LINE_BYTES);
        text.push(b'\n');
        text.extend(b"line\n".repeat(1000));
        let (log, lines, _) = read(&text, None, Some(100));
        assert_eq!(log.len(), 100);
        assert_eq!(lines.len(), LAST_LINES);
        let (_, lines, _) = read(&text[..=3 * LINE_BYTES], None, None);
        assert_eq!(lines[0].len(), LINE_BYTES);
    }
}
