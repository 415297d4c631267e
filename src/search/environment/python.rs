//! Runs a small script of gputune's own in an interpreter, which prints its answer as JSON.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::words::Found;

const SCRIPT: &str = include_str!("look.py");

/// How long to wait for the interpreter, which may take seconds to start on a slow file system: a round number.
const PATIENCE: Duration = Duration::from_secs(30);

/// The packages whose versions affect how fast a job is.
const FRAMEWORKS: &[&str] = &[
    "torch",
    "torchvision",
    "triton",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "tensorflow",
    "keras",
    "jax",
    "jaxlib",
    "lightning",
    "pytorch-lightning",
    "transformers",
    "accelerate",
    "deepspeed",
    "datasets",
    "timm",
    "flash-attn",
    "xformers",
    "bitsandbytes",
    "numpy",
];

/// The interpreter's answer.
#[derive(Debug, Deserialize)]
pub(super) struct Told {
    pub(super) executable: String,
    pub(super) version: String,
    pub(super) frameworks: BTreeMap<String, String>,
    pub(super) files: Vec<PathBuf>,
}

/// Asks an interpreter about itself and about a script's imports; `None` if it does not answer.
pub(super) fn look(program: &Path, found: &Found, env: &BTreeMap<String, String>, cwd: &Path) -> Option<Told> {
    let asked = serde_json::json!({
        "cwd": cwd,
        "roots": found.files,
        "modules": found.modules,
        "frameworks": FRAMEWORKS,
    });
    ask(program, SCRIPT, &asked, env, cwd)
}

/// Runs a script in an interpreter with a JSON argument; `None` if it prints no JSON.
pub(super) fn ask<T: DeserializeOwned>(
    program: &Path,
    script: &str,
    asked: &Value,
    env: &BTreeMap<String, String>,
    cwd: &Path,
) -> Option<T> {
    let mut command = Command::new(program);
    command.args(["-c", script, &asked.to_string()]).envs(env).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(cwd);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let output = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let mut output = output;
        output.read_to_end(&mut text).map(|_| text)
    });
    let is_done = wait(&mut child);
    if !is_done {
        let _ = child.kill();
        let _ = child.wait();
        // A process that it started may hold the pipe open for ever.
        return None;
    }
    let text = reader.join().ok()?.ok()?;
    // Output of the environment's own start-up comes first.
    let begin = text.windows(2).rposition(|pair| pair == b"\n{").map_or(0, |at| at + 1);
    serde_json::from_slice(&text[begin..]).ok()
}

/// Waits for a process. Returns true if it ended well in time.
fn wait(child: &mut Child) -> bool {
    const LOOK_EVERY: Duration = Duration::from_millis(2);
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(LOOK_EVERY),
            Err(_) => return false,
        }
    }
    false
}
