//! The interface of the GPU meter for the rest of the program.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use nvml_wrapper::Nvml;

use super::ask::{NoNvml, Told};
use super::facts::facts;
use super::list::handles;
use super::worker::{Request, Worker};
use super::{GpuIdentity, Metered, Visible, Window};
use crate::machine::telemetry::{GpuFacts, GpuState};

/// A meter that asks NVML in a thread of its own. It can watch one probe at a time.
#[derive(Debug)]
pub struct GpuMeter {
    requests: Mutex<Sender<Request>>,
    sent: AtomicU64,
    answered: Arc<AtomicU64>,
    driver: String,
}

/// How long a driver may take to start: without persistence mode, it then initialises all GPUs. A round number.
const TIME_TO_OPEN: Duration = Duration::from_secs(30);
/// How long the driver may take to answer: a round number.
const TIME_TO_ANSWER: Duration = Duration::from_secs(5);
/// How long the last reading, and the evaluation, may delay the end of a probe: round numbers.
const TIME_TO_LOOK: Duration = Duration::from_millis(300);
const TIME_TO_END: Duration = Duration::from_secs(2);

impl GpuMeter {
    /// Returns the meter of this process, opened at its first use.
    ///
    /// # Errors
    /// The reason why no meter can be opened, in one line.
    pub fn shared() -> Result<&'static Self, &'static NoNvml> {
        static METER: OnceLock<Result<GpuMeter, NoNvml>> = OnceLock::new();
        METER.get_or_init(|| Self::open("libnvidia-ml.so.1".as_ref())).as_ref()
    }

    /// Opens the library at a path, or by a name that the loader looks for.
    ///
    /// # Errors
    /// The library is missing, broken, too old, without driver or permission, or does not answer; the line says why.
    pub fn open(library: &OsStr) -> Result<Self, NoNvml> {
        let (requests, theirs) = channel();
        let answered = Arc::new(AtomicU64::new(0));
        let (opened, result) = sync_channel(1);
        let (library, counter) = (library.to_owned(), Arc::clone(&answered));
        let serve = move || match Nvml::builder().lib_path(&library).init() {
            Ok(nvml) => {
                // Leak it: handles and samples borrow `nvml`, and the thread may hang in the library forever.
                let nvml: &'static Nvml = Box::leak(Box::new(nvml));
                let driver = nvml.sys_driver_version().unwrap_or_else(|_| "unknown".to_owned());
                let _ = opened.send(Ok(driver));
                Worker::new(nvml).serve(&theirs, &counter);
            }
            Err(error) => drop(opened.send(Err(NoNvml::because(&error)))),
        };
        let started = thread::Builder::new().name("gpu meter".to_owned()).spawn(serve);
        started.map_err(|error| NoNvml::told(&error.to_string()))?;
        let driver = result.recv_timeout(TIME_TO_OPEN).map_err(|_| NoNvml::told("it does not answer"))??;
        Ok(Self { requests: Mutex::new(requests), sent: AtomicU64::new(0), answered, driver })
    }

    /// Returns the driver's version.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Returns all GPUs and MIG instances, in the order of the PCI bus.
    ///
    /// # Errors
    /// The GPUs cannot be listed; the line says why.
    pub fn gpus(&self) -> Result<Vec<GpuIdentity>, String> {
        self.ask(TIME_TO_ANSWER, |worker| {
            handles(worker.nvml).map(|found| found.into_iter().map(|handle| handle.identity).collect())
        })?
    }

    /// Returns the memory in use now on the GPUs visible to a program, and the processes on them.
    ///
    /// # Errors
    /// The memory cannot be read; the line says why.
    pub fn read(&self, visible: &Visible) -> Result<GpuState, String> {
        let visible = visible.clone();
        self.ask(TIME_TO_ANSWER, move |worker| worker.read(&visible))?
    }

    /// Returns the facts about all GPUs and instances, including hidden GPUs, and the state of their meters.
    ///
    /// # Errors
    /// The facts cannot be read; the line says why.
    pub fn facts(&self, visible: &Visible) -> Result<Vec<GpuFacts>, String> {
        let visible = visible.clone();
        self.ask(TIME_TO_ANSWER, move |worker| facts(worker.nvml, &visible))?
    }

    /// Watches a probe: the process `root` and its descendants. `idle` is the memory in use before. Returns at once.
    pub fn begin(&self, visible: &Visible, root: u32, idle: GpuState) {
        let visible = visible.clone();
        self.send(Box::new(move |worker: &mut Worker| worker.begin(&visible, root, idle)));
    }

    /// Reads the probe's state once more, while its processes still exist. Waits only briefly.
    pub fn look(&self) {
        let _ = self.ask(TIME_TO_LOOK, Worker::look);
    }

    /// Requests the activity between two moments, without waiting. The watch goes on. `None` if a request is open.
    pub fn ask_now(&self, window: Window) -> Option<Receiver<Result<Metered, String>>> {
        if self.behind() > 0 {
            return None;
        }
        let (reply, answer) = sync_channel(1);
        self.send(Box::new(move |worker: &mut Worker| drop(reply.send(worker.metered(window))))).then_some(answer)
    }

    /// Ends the watch and returns the activity of the GPUs in the measured time.
    ///
    /// # Errors
    /// Nothing is known about any GPU; the line says why.
    pub fn end(&self, window: Window) -> Result<Metered, String> {
        self.ask(TIME_TO_END, move |worker| worker.end(window))?
    }

    /// Sends a request; false if the thread has ended.
    fn send(&self, request: Request) -> bool {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        self.sent.fetch_add(1, Ordering::SeqCst);
        requests.send(request).is_ok()
    }

    fn behind(&self) -> u64 {
        // Other threads may send in between. With `answered` read first, the result is never too small.
        let answered = self.answered.load(Ordering::SeqCst);
        self.sent.load(Ordering::SeqCst).saturating_sub(answered)
    }

    fn ask<T: Send + 'static>(&self, time: Duration, call: impl FnOnce(&mut Worker) -> T + Send + 'static) -> Told<T> {
        const SILENT: &str = "NVML does not answer";
        // One request of `ask_now` may still be open. If more are open, an earlier request timed out.
        if self.behind() > 1 {
            return Err(SILENT.to_owned());
        }
        let (reply, answer) = sync_channel(1);
        self.send(Box::new(move |worker: &mut Worker| drop(reply.send(call(worker)))));
        answer.recv_timeout(time).map_err(|_| SILENT.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_counted_early_does_no_harm() {
        let (requests, answered) = (Mutex::new(channel().0), Arc::new(AtomicU64::new(3)));
        let meter = GpuMeter { requests, sent: AtomicU64::new(2), answered, driver: String::new() };
        assert_eq!(meter.behind(), 0);
    }
}
