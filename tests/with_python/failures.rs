//! Every failure in `docs/design/failure-texts.md`, by a real process. PyTorch raises the failures that it can raise on a CPU; a
//! program prints the recorded text of the GPU failures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::support::python::{Python, python_with, python_with_new_torch};
use crate::support::{Search, child, gputune, stderr};
use gputune::model::{Memory, Outcome};

const ONE_PROBE: &str = "[search]\nprobes = 1\nrounds = 0\n";

/// The kernel counts its kills for the whole machine. So a test that causes kills must not run next to a test that sees SIGKILL
/// for another reason.
static KERNEL: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    KERNEL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn first(search: &Search, output: &Output) -> Outcome {
    let outcome = search.lines().first().map(|line| line.outcome.clone());
    outcome.unwrap_or_else(|| panic!("no trial: {}", stderr(output)))
}

fn reason(outcome: &Outcome) -> String {
    outcome.failure().map(|failure| failure.reason.clone()).unwrap_or_default()
}

fn assert_crash(outcome: &Outcome, words: &str) {
    assert!(matches!(outcome, Outcome::Crashed(_)) && reason(outcome).contains(words), "{words}: {outcome:#?}");
}

fn assert_lack(outcome: &Outcome, of: Memory, words: &str) {
    let fits = matches!(outcome, Outcome::OutOfMemory { memory, .. } if *memory == of);
    assert!(fits && reason(outcome).contains(words), "{of}, {words}: {outcome:#?}");
}

/// Returns the outcome of the child's first probe.
fn of_child(arguments: &[&str]) -> Outcome {
    let search = Search::of(arguments, ONE_PROBE);
    let output = search.run();
    search.assert_no_survivors();
    first(&search, &output)
}

/// Returns the outcome of a script of `tests/programs/failing`; `None` without PyTorch.
fn of_script(script: &str, arguments: &[&str]) -> Option<Outcome> {
    let (search, _python) = script_search(script, arguments)?;
    let output = search.run();
    search.assert_no_survivors();
    Some(first(&search, &output))
}

/// Returns the search, and the Python that holds the turn while it runs.
fn script_search(script: &str, arguments: &[&str]) -> Option<(Search, Python)> {
    let is_distributed = script == "ranks.py";
    // The torchrun of Debian's torch 1.13 does not run with Debian's Python.
    let python = if is_distributed { python_with_new_torch() } else { python_with(&["torch"]) }?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/failing").join(script);
    let mut words = vec![python.display().to_string()];
    if is_distributed {
        words.extend(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"].map(str::to_owned));
    }
    words.push(script.display().to_string());
    words.extend(arguments.iter().map(|&argument| argument.to_owned()));
    words.extend(["{x}", "TOKEN"].map(str::to_owned));
    // Long enough for PyTorch to start on a busy machine; only a script that hangs makes the test wait that long.
    let hangs = arguments[0].contains("hangs") || arguments[0] == "stopped";
    let python = if hangs { python.hangs() } else { python };
    let stall_time = match (is_distributed, hangs) {
        (_, false) => 120,
        (true, true) => 60,
        (false, true) => 40,
    };
    let limits = format!(
        "[limits]\nprobe_time = \"240s\"\nstall_time = \"{stall_time}s\"\ngrace_time = \"1s\"\nmeasure_time = \"60s\"\nprecision = 0.0001\n"
    );
    let step = "adapter = \"torch\"\nenv = { OMP_NUM_THREADS = \"1\" }\n";
    Some((Search::of_command(&words, &format!("{step}{limits}{ONE_PROBE}")), python))
}

#[test]
fn recorded_texts_of_a_lack_of_memory() {
    for (memory, text) in [
        (
            Memory::Device,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.06 GiB is free.",
        ),
        (
            Memory::Device,
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 6.00 GiB already allocated; 12.00 MiB free; 7.00 GiB reserved in total by PyTorch)",
        ),
        (Memory::Device, "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        (Memory::Device, "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        (
            Memory::Device,
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 68719476736 bytes.",
        ),
        (
            Memory::Device,
            "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[64,3,224,224] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        ),
        (Memory::Device, "host:71:93 [0] include/alloc.h:178 NCCL WARN Cuda failure 2 'out of memory'"),
        (Memory::Device, "Error out of memory at line 82 in file /src/csrc/ops.cu"),
        (
            Memory::Host,
            "slurmstepd: error: Detected 1 oom_kill event in StepId=71.0. Some of the step tasks have been OOM Killed.",
        ),
        (Memory::Shared, "RuntimeError: unable to write to file </torch_71_2929_0>: No space left on device (28)"),
    ] {
        let outcome = of_child(&[&format!("complain:{text}"), "complain:tidying up", "exit:1"]);
        assert_lack(&outcome, memory, &text[..20]);
    }
}

#[test]
fn memory_that_another_process_holds_is_named() {
    let text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.06 GiB is free. Process 4194305 has 20.00 GiB memory in use. Including non-PyTorch memory, this process has 58.00 GiB memory in use.";
    let outcome = of_child(&[&format!("complain:{text}"), "exit:1"]);
    assert_lack(
        &outcome,
        Memory::Device,
        "Tried to allocate 2.00 GiB (1.06 GiB of 79.10 GiB are free; process 4194305, which is none of the probe's, holds 20.00 GiB)",
    );
}

#[test]
fn a_sticky_error_of_the_device_is_a_crash() {
    let text = "RuntimeError: CUDA error: an illegal memory access was encountered";
    let outcome = of_child(&[&format!("complain:{text}"), "complain:CUDA out of memory", "exit:1"]);
    assert_crash(&outcome, "exit code 1: RuntimeError: CUDA error: an illegal memory access was encountered");
}

#[test]
fn an_allocation_that_is_too_large() {
    let Some(outcome) = of_script("train.py", &["allocation-too-large"]) else { return };
    assert_lack(&outcome, Memory::Host, "DefaultCPUAllocator: can't allocate memory");
}

/// A memory group of 64 MiB, removed when dropped; `None` if it cannot be made.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn new(name: &str) -> Option<Self> {
        for (root, limit) in [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")] {
            let group = Self(Path::new(root).join(format!("gputune-test-{}-{name}", std::process::id())));
            if fs::create_dir(&group.0).is_ok() && fs::write(group.0.join(limit), "67108864").is_ok() {
                let _ = fs::write(group.0.join("memory.swap.max"), "0");
                return Some(group);
            }
        }
        eprintln!("NOT RUN: no memory group can be made here");
        None
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_process_that_the_kernel_kills_for_lack_of_memory() {
    let _alone = alone();
    let Some(group) = MemoryGroup::new("main") else { return };
    let join = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", group.0.display());
    for shell in [format!("{join} && true"), format!("sh -c '{join}' \"$0\" \"$@\"; exit $?")] {
        let words = ["sh", "-c", &shell, &child().display().to_string(), "token:TOKEN", "eat:1073741824", "sleep:{x}"];
        let search = Search::of_command(&words.map(str::to_owned), ONE_PROBE);
        let output = search.run();
        assert_lack(&first(&search, &output), Memory::Host, "the kernel killed it because memory ran out");
    }
}

#[test]
fn a_data_worker_that_the_kernel_kills_for_lack_of_memory() {
    let _alone = alone();
    let Some(group) = MemoryGroup::new("worker") else { return };
    let Some(outcome) = of_script("train.py", &["worker-out-of-memory", &group.0.display().to_string()]) else {
        return;
    };
    assert_lack(&outcome, Memory::Host, "the kernel killed a data worker because memory ran out");
}

#[test]
fn an_exit_code_137_that_the_kernel_knows_nothing_of() {
    let _alone = alone();
    assert_crash(&of_child(&["exit:137"]), "exit code 137 (SIGKILL)");
    assert_crash(&of_child(&["signal:9"]), "killed by signal 9 (SIGKILL)");
}

#[test]
fn a_data_worker_that_somebody_kills() {
    let _alone = alone();
    let Some(outcome) = of_script("train.py", &["worker-killed"]) else { return };
    assert_crash(&outcome, "a data worker was killed by signal 9 (SIGKILL)");
}

#[test]
fn a_data_worker_that_raises() {
    let Some(outcome) = of_script("train.py", &["worker-raises"]) else { return };
    assert_crash(&outcome, "ValueError: sample 200 is no picture (in data worker 0)");
}

#[test]
fn a_data_worker_that_does_not_start() {
    let Some(outcome) = of_script("train.py", &["worker-does-not-start"]) else { return };
    assert_crash(&outcome, "a process could not be started: ");
    assert_crash(&outcome, "pickle");
}

#[test]
fn a_bus_error_in_a_data_worker() {
    let Some(outcome) = of_script("train.py", &["worker-bus-error"]) else { return };
    assert_lack(&outcome, Memory::Shared, "us error");
}

/// Runs the search with a `/dev/shm` of 8 MiB; `None` if it cannot be mounted.
fn with_little_shared_memory(search: &Search) -> Option<Output> {
    let mount = "mount -t tmpfs -o size=8m tmpfs /dev/shm";
    if !Command::new("unshare").args(["-m", "sh", "-c", mount]).status().is_ok_and(|status| status.success()) {
        eprintln!("NOT RUN: no /dev/shm of one's own can be mounted here");
        return None;
    }
    let script = format!("{mount} && exec \"$0\" search spec.toml --out out");
    let mut run = Command::new("unshare");
    run.args(["-m", "sh", "-c", &script, gputune()]).current_dir(search.folder.path());
    Some(run.output().unwrap())
}

#[test]
fn shared_memory_that_is_too_small() {
    let Some((search, _python)) = script_search("train.py", &["shared-memory-full"]) else { return };
    let Some(output) = with_little_shared_memory(&search) else { return };
    let outcome = first(&search, &output);
    assert_lack(&outcome, Memory::Shared, "");
}

#[test]
fn shared_memory_that_is_full_when_a_bus_error_ends_the_step() {
    let search = Search::of(&["shared:full:8388608", "sleep:1500", "signal:7", "signal:7"], ONE_PROBE);
    let Some(output) = with_little_shared_memory(&search) else { return };
    let words = "killed by signal 7 (SIGBUS); 8.00 MiB of the 8.00 MiB of /dev/shm were in use";
    assert_lack(&first(&search, &output), Memory::Shared, words);
    assert_crash(&of_child(&["signal:7", "signal:7"]), "killed by signal 7 (SIGBUS)");
}

#[test]
fn a_loss_that_is_no_number() {
    let Some(outcome) = of_script("train.py", &["loss-is-nan"]) else { return };
    assert!(matches!(outcome, Outcome::Diverged(_)) && reason(&outcome) == "the loss is NaN", "{outcome:?}");
}

#[test]
fn a_data_set_that_hangs() {
    let Some(outcome) = of_script("train.py", &["data-set-hangs"]) else { return };
    assert!(matches!(outcome, Outcome::Stalled(_)), "{outcome:#?}");
    assert!(reason(&outcome).contains("waiting for the data loader (train.py:"), "{outcome:#?}");
    let lines = &outcome.failure().unwrap().last_lines;
    assert!(lines.iter().any(|line| line.contains("torch/utils/data/dataloader.py")), "{lines:#?}");
}

#[test]
fn a_script_that_hangs() {
    let Some(outcome) = of_script("train.py", &["hangs"]) else { return };
    assert!(matches!(outcome, Outcome::Stalled(_)), "{outcome:#?}");
    assert!(reason(&outcome).starts_with("no progress for 40 s, after "), "{outcome:#?}");
    assert!(reason(&outcome).contains(" steps: in train.py:"), "{outcome:#?}");
}

#[test]
fn a_collective_that_a_rank_does_not_join() {
    let Some(outcome) = of_script("ranks.py", &["hangs"]) else { return };
    assert!(matches!(outcome, Outcome::Stalled(_)), "{outcome:#?}");
    assert!(reason(&outcome).contains("rank 0: waiting for other ranks in all_reduce (ranks.py:"), "{outcome:#?}");
    assert!(reason(&outcome).contains("rank 1: in ranks.py:"), "{outcome:#?}");
}

#[test]
fn a_rank_that_is_stopped() {
    let Some(outcome) = of_script("ranks.py", &["stopped"]) else { return };
    assert!(matches!(outcome, Outcome::Stalled(_)), "{outcome:#?}");
    assert!(reason(&outcome).contains("rank 1: stopped by a signal (process "), "{outcome:#?}");
}

#[test]
fn a_rank_that_is_killed() {
    let _alone = alone();
    let Some(outcome) = of_script("ranks.py", &["killed"]) else { return };
    assert_crash(&outcome, "rank 1");
}

#[test]
fn a_rank_that_raises() {
    let Some(outcome) = of_script("ranks.py", &["raises"]) else { return };
    assert_crash(&outcome, "ValueError: rank 1 has no data");
}

/// A failure of the environment: nothing is recorded, and the search ends.
fn assert_environment(search: &Search, words: &str) {
    let output = search.run();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!("cannot run in this environment: {words}")), "{}", stderr(&output));
    assert_eq!(search.lines(), []);
}

#[test]
fn a_module_that_is_missing() {
    let Some(python) = python_with(&["json"]) else { return };
    let words = [python.display().to_string(), "-c".to_owned(), "import no_such_module, x{x}".to_owned()];
    let search = Search::of_command(&words, ONE_PROBE);
    assert_environment(&search, "ModuleNotFoundError: No module named 'no_such_module'");
}

#[test]
fn a_port_that_is_taken_is_no_fault_of_a_config() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let search = Search::of(&[&format!("listen:{port}"), "forever:{x}:1000"], ONE_PROBE);
    let output = search.run();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let text = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(&format!("listens on port {port}")), "{text}");
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    assert!(search.lines().is_empty(), "no config is to blame");
    drop(listener);
    // Each process of the job takes the port, so no two can run at once.
    let space =
        "[space]\nx = { values = [1, 4] }\n[baseline]\nx = 1\n[limits]\nmeasure_time = \"1s\"\n[search]\nprobes = 2\n";
    let search = Search::of(&[&format!("listen:{port}"), "obeying:{x}:2000"], space);
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(search.lines().iter().all(|line| line.outcome.measurement().is_some()), "{}", stderr(&output));
    assert_eq!(search.best()["verdict"], "faster", "{}", stderr(&output));
}

#[test]
fn a_program_that_a_shell_does_not_find() {
    let words = ["sh", "-c", "no-such-program-anywhere {x}"].map(str::to_owned);
    assert_environment(&Search::of_command(&words, ONE_PROBE), "exit code 127");
    let words = ["sh", "-c", "echo 't.py: error: unrecognized arguments: --x' >&2; exit 2"].map(str::to_owned);
    assert_environment(&Search::of_command(&words, ONE_PROBE), "exit code 2: t.py: error: unrecognized arguments: --x");
}

#[test]
fn a_gputune_that_stands_still() {
    let search =
        Search::of(&["forever:1:2000"], &format!("[limits]\nmeasure_time = \"4s\"\nprecision = 0.0001\n{ONE_PROBE}"));
    let running =
        search.command().stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    let log = search.out().join("logs/0001.log");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !log.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(500));
    let signal = |name: &str| Command::new("kill").args([name, &running.id().to_string()]).status().unwrap();
    signal("-STOP");
    std::thread::sleep(Duration::from_millis(1500));
    signal("-CONT");
    let output = running.wait_with_output().unwrap();
    assert!(stderr(&output).contains("probed again: gputune was stopped for "), "{}", stderr(&output));
}

#[test]
fn a_step_that_reports_nothing() {
    assert_crash(&of_child(&["print:trained", "exit:0"]), "ended with exit code 0 before a step was seen");
}

#[test]
fn the_wrong_number_of_ranks() {
    let hello = "send:{\"event\":\"hello\",\"rank\":0,\"ranks\":1}";
    let search = Search::of(&[hello, "forever:{x}:1000"], &format!("ranks = \"2\"\n{ONE_PROBE}"));
    let output = search.run();
    assert_crash(&first(&search, &output), "1 process reported, 2 were to");
}

#[test]
fn a_step_that_takes_too_long() {
    let limits = "[limits]\nprobe_time = \"1s\"\ngrace_time = \"100ms\"\n";
    let search = Search::of(&["bytes:100000000000", "sleep:{x}"], &format!("{limits}log_size = \"1MiB\"\n{ONE_PROBE}"));
    let output = search.run();
    let outcome = first(&search, &output);
    assert!(matches!(outcome, Outcome::TimedOut(_)) && reason(&outcome) == "no step after 1 s", "{outcome:?}");
}

#[test]
fn a_step_that_makes_no_progress() {
    let limits = "[limits]\nstall_time = \"3s\"\ngrace_time = \"100ms\"\n";
    let search = Search::of(&["steps:5:{x}:1000", "sleep:60000"], &format!("{limits}{ONE_PROBE}"));
    let output = search.run();
    let outcome = first(&search, &output);
    assert!(matches!(outcome, Outcome::Stalled(_)), "{outcome:?}");
    assert_eq!(reason(&outcome), "no progress for 3 s, after 4 steps");
}

#[test]
fn a_process_that_is_stopped_needs_no_adapter_to_be_seen() {
    let limits = "[limits]\nstall_time = \"3s\"\ngrace_time = \"100ms\"\n";
    let search = Search::of(&["steps:5:{x}:1000", "signal:19"], &format!("{limits}{ONE_PROBE}"));
    let output = search.run();
    search.assert_no_survivors();
    assert!(reason(&first(&search, &output)).ends_with("is stopped by a signal"), "{}", stderr(&output));
}

#[test]
fn an_interruption_leaves_no_trial() {
    let search = Search::of(
        &["forever:{x}:1000"],
        "[limits]\nprobe_time = \"60s\"\nmeasure_time = \"60s\"\nprecision = 0.0001\n[search]\nrounds = 0\n",
    );
    let mut running = search.command().spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while search.survivors().is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(running.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(130));
    assert!(search.lines().is_empty());
    search.assert_no_survivors();
}

#[test]
fn host_memory_that_runs_short() {
    let limits = "[limits]\nhost_memory_headroom = 0.999\ngrace_time = \"100ms\"\n";
    let search = Search::of(&["sleep:{x}000"], &format!("{limits}{ONE_PROBE}"));
    let output = search.run();
    assert_eq!(output.status.code(), Some(3), "nothing is ever free to that extent, and the step holds next to none");
    assert!(stderr(&output).contains("the probes are disturbed from outside: only "), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("of host memory is left (99.9 % must be); the probe holds "),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_script_that_ignores_its_batch_size() {
    let space = "[space]\nbatch_size = { values = [8, 16] }\n[baseline]\nbatch_size = 8\n[search]\nrounds = 0\n";
    let search = Search::of(&["forever:8:1000", "token:{batch_size}"], space);
    let output = search.run();
    let second = search.lines().get(1).map(|line| line.outcome.clone());
    let Some(Outcome::Rejected(failure)) = second else { panic!("{second:?} {}", stderr(&output)) };
    assert_eq!(failure.reason, "`batch_size` has no effect: a step takes 8 samples with 16 as with 8");
}

#[test]
fn processors_that_other_programs_fill_are_told_of() {
    let limits = "[limits]\nprobe_time = \"20s\"\ngrace_time = \"100ms\"\nmeasure_time = \"3s\"\nprecision = 0.0001\n";
    let search = Search::of(&["forever:{x}:1000"], &format!("{limits}{ONE_PROBE}"));
    let ended = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        let output = search.run();
        ended.store(true, Ordering::Relaxed);
        output
    });
    let measured = first(&search, &output);
    let share = measured.measurement().unwrap().machine.foreign_cpu_share.unwrap();
    assert!((0.5..=1.0).contains(&share), "{share}");
    assert!(stderr(&output).contains("in 1 of 1 probes, other programs used up to "), "{}", stderr(&output));
}

#[test]
fn what_a_step_leaves_in_shared_memory_is_removed_and_nothing_else() {
    let name = |of: &str| format!("gputune-test-{}-{of}", std::process::id());
    let path = |of: &str| Path::new("/dev/shm").join(name(of));
    if fs::write(path("other"), "not the step's").is_err() {
        return eprintln!("NOT RUN: there is no /dev/shm");
    }
    let search = Search::of(&[&format!("shared:{}:1048576", name("left")), "forever:{x}:1000"], ONE_PROBE);
    let output = search.run();
    let measured = first(&search, &output);
    assert_eq!(measured.measurement().unwrap().machine.shared_memory_peak_bytes, Some(1 << 20));
    assert!(!path("left").exists() && path("other").exists());
    fs::remove_file(path("other")).unwrap();
}

#[test]
fn last_lines_of_any_size_and_in_any_script_are_survived() {
    let traceback = "print:Traceback (most recent call last):\n  File \"größe.py\", line 1\nValueError: \u{1f3d6}\u{fe0f} größe \u{202e}passt nicht\n 50%|█████     | 1/2 [00:01<00:01,  1.0it/s]";
    let outcome = of_child(&["bytes:10000000", "print:", traceback, "exit:1"]);
    assert_crash(&outcome, "exit code 1: ValueError: \u{1f3d6}\u{fe0f} größe");
    let long = "x".repeat(100_000);
    let outcome = of_child(&[&format!("complain:ValueError: {long}"), "ignore-term", "exit:1"]);
    assert!(reason(&outcome).starts_with("exit code 1: ValueError: xxx"));
    assert!(reason(&outcome).len() < 600, "{}", reason(&outcome).len());
}
