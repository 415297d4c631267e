//! The protocol for a training step in Rust.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::net::Shutdown;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::{ErrorKind, Event, MemoryReport, Number, Order, SOCKET, VERSION_OF_HOLD, first_version};
use crate::model::Fact;
use crate::probe::orders::send;

/// Sends the reports of a training step in Rust. A report fails if the probe is gone.
///
/// ```no_run
/// use std::time::Duration;
/// use gputune::probe::protocol::Reporter;
///
/// let mut reporter = Reporter::from_env()?.obeying()?; // silent outside a probe
/// reporter.hello("my framework 1.0")?;
/// for _ in 0..1000 {
///     reporter.phase("data_wait", Duration::from_millis(1))?;
///     reporter.step(32, Some(0.7))?;
///     if reporter.obey()?.is_break() {
///         break;
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Reporter {
    socket: Option<UnixStream>,
    begin: Instant,
    /// The received orders, if the reporter listens to orders.
    orders: Option<Receiver<Order>>,
}

impl Reporter {
    /// Connects to the probe that this process belongs to. Outside a probe, all reports are ignored.
    ///
    /// # Errors
    /// The environment names a socket that cannot be reached.
    pub fn from_env() -> io::Result<Self> {
        let socket = std::env::var_os(SOCKET).map(|path| UnixStream::connect(Path::new(&path))).transpose()?;
        Ok(Self { socket, begin: Instant::now(), orders: None })
    }

    /// Makes the reporter listen to orders. Call [`hello`](Self::hello) afterwards, so that gputune knows of it, and
    /// [`obey`](Self::obey) after each training step.
    ///
    /// gputune can then end the run in an orderly way, and make it wait while another config trains. So gputune
    /// compares the best configs within seconds of each other.
    ///
    /// # Errors
    /// The thread that listens cannot be started.
    pub fn obeying(mut self) -> io::Result<Self> {
        if let (Some(socket), None) = (&self.socket, &self.orders) {
            let (lines, (send, orders)) = (socket.try_clone()?, channel());
            thread::Builder::new().name("gputune orders".to_owned()).spawn(move || listen(lines, &send))?;
            self.orders = Some(orders);
        }
        Ok(self)
    }

    /// Returns true if the process belongs to a probe.
    pub fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Reports the framework.
    pub fn hello(&mut self, framework: &str) -> io::Result<()> {
        let orders = self.orders.is_some();
        self.send(&Event::Hello {
            framework: Some(framework.to_owned()),
            rank: 0,
            ranks: None,
            pid: None,
            orders,
            version: if orders { VERSION_OF_HOLD } else { first_version() },
        })
    }

    /// Obeys gputune's orders since the last step: waits between two steps while gputune holds it. Returns `Break` if the run must
    /// end. Without [`obeying`](Self::obeying) no orders arrive.
    ///
    /// All earlier reports are already sent. While the step waits, its whole process may be stopped (SIGSTOP).
    pub fn obey(&mut self) -> io::Result<ControlFlow<()>> {
        let mut is_held = false;
        while let Some(orders) = &self.orders {
            let order = match orders.try_recv() {
                Err(TryRecvError::Empty) if !is_held => break,
                Err(TryRecvError::Empty) => orders.recv().ok(),
                order => order.ok(),
            };
            match order {
                // gputune is gone, so no further order can come.
                None | Some(Order::Stop) => return Ok(ControlFlow::Break(())),
                Some(Order::Hold) => {
                    is_held = true;
                    self.send(&Event::Held)?;
                }
                Some(Order::Configure { segment, .. }) => {
                    let refused = Some("this step takes its settings when it starts".to_owned());
                    self.send(&Event::Configured { segment, refused })?;
                }
                Some(Order::Go) => is_held = false,
                Some(Order::Unknown) => {}
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reports a fact about the process, such as `loader.workers`. gputune verifies settings by their facts.
    pub fn fact(&mut self, name: &str, value: impl Into<Fact>) -> io::Result<()> {
        self.send(&Event::Fact { name: name.to_owned(), value: value.into() })
    }

    /// Reports that a step with this many samples ended now.
    pub fn step(&mut self, samples: u64, loss: Option<f64>) -> io::Result<()> {
        self.step_with(samples, loss, None)
    }

    /// Reports that a step ended now, with its number of floating-point operations.
    pub fn step_with(&mut self, samples: u64, loss: Option<f64>, flops: Option<f64>) -> io::Result<()> {
        let samples = Some(samples as f64);
        let time = Some(self.begin.elapsed().as_secs_f64());
        let (handed_out, metrics) = (None, BTreeMap::new());
        self.send(&Event::Step { samples, handed_out, time, seconds: None, loss, flops, metrics, timed: true })
    }

    /// Reports the duration of a phase of the current step.
    pub fn phase(&mut self, name: &str, time: Duration) -> io::Result<()> {
        self.send(&Event::Phase { name: name.to_owned(), seconds: Number(time.as_secs_f64()) })
    }

    /// Reports the peak of device memory use, and the capacity.
    pub fn memory(&mut self, peak_bytes: u64, capacity_bytes: Option<u64>) -> io::Result<()> {
        let (allocated, capacity) = (Some(peak_bytes), capacity_bytes);
        self.send(&Event::Memory(MemoryReport { allocated, capacity, ..MemoryReport::default() }))
    }

    /// Reports why the step cannot continue.
    pub fn error(&mut self, kind: ErrorKind, message: &str) -> io::Result<()> {
        self.send(&Event::Error { kind, message: message.to_owned(), parameters: Vec::new() })
    }

    fn send(&mut self, event: &Event) -> io::Result<()> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        send(socket, event)
    }
}

impl Drop for Reporter {
    /// Sends `bye` if gputune expects it, and ends the thread that listens.
    fn drop(&mut self) {
        if self.orders.is_some() && !thread::panicking() {
            // If the probe is gone, the `bye` is not needed.
            let _ = self.send(&Event::Bye);
        }
        if let Some(socket) = self.socket.as_ref().filter(|_| self.orders.is_some()) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Passes on the orders until the connection or the channel is closed.
fn listen(lines: UnixStream, orders: &Sender<Order>) {
    for line in BufReader::new(lines).lines() {
        let Ok(line) = line else { return };
        let order = serde_json::from_str(&line).unwrap_or(Order::Unknown);
        if orders.send(order).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::orders::read_line;

    /// Returns a reporter and the probe's end of its connection.
    fn connected() -> (Reporter, BufReader<UnixStream>) {
        let (step, probe) = UnixStream::pair().unwrap();
        let reporter = Reporter { socket: Some(step), begin: Instant::now(), orders: None };
        (reporter.obeying().unwrap(), BufReader::new(probe))
    }

    fn order(probe: &BufReader<UnixStream>, order: &Order) {
        send(&mut probe.get_ref(), order).unwrap();
    }

    #[test]
    fn a_step_refuses_other_settings_and_says_bye() {
        let (mut reporter, mut probe) = connected();
        let (config, apply) = (Default::default(), BTreeMap::new());
        order(&probe, &Order::Configure { segment: 2, config, apply });
        order(&probe, &Order::Stop);
        let begin = Instant::now();
        while reporter.obey().unwrap().is_continue() {
            assert!(begin.elapsed() < Duration::from_secs(120));
        }
        drop(reporter);
        let events: [Event; 2] = [(); 2].map(|()| read_line(&mut probe).unwrap().unwrap());
        assert!(matches!(events, [Event::Configured { segment: 2, refused: Some(_) }, Event::Bye]), "{events:?}");
    }

    #[test]
    fn a_step_ends_when_the_probe_is_gone() {
        let (mut reporter, probe) = connected();
        order(&probe, &Order::Hold);
        drop(probe);
        let begin = Instant::now();
        // The reporter may first receive the order to wait, and then fails to answer it.
        while !matches!(reporter.obey(), Ok(ControlFlow::Break(())) | Err(_)) {
            assert!(begin.elapsed() < Duration::from_secs(120));
        }
    }

    #[test]
    fn without_a_probe_nothing_is_ordered() {
        let mut reporter = Reporter { socket: None, begin: Instant::now(), orders: None }.obeying().unwrap();
        assert!(!reporter.is_connected());
        assert_eq!(reporter.obey().unwrap(), ControlFlow::Continue(()));
    }
}
