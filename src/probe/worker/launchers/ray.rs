//! Workers as jobs of a Ray cluster, by its REST API ("Ray Jobs REST API" in Ray's documentation). They dial in.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Called, Dialling, Start, Token, Wanted, WorkerError, Workers, quoted, variable};

pub(super) const START: Start = Start::Dial(Dialling { address, call, needs_token_file: false });

/// The default address of a head (Ray's documentation).
const USUAL: &str = "http://127.0.0.1:8265";

/// How long the head may take to answer, and a job to end: round numbers. Ray gives a job three seconds from SIGTERM to SIGKILL,
/// and a busy head took two seconds to answer.
const LONGEST_ANSWER_S: u64 = 30;
const LONGEST_END: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
struct Head {
    url: String,
    token: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Job {
    status: String,
    #[serde(default)]
    message: Option<String>,
}

impl Job {
    fn is_over(&self) -> bool {
        matches!(self.status.as_str(), "STOPPED" | "SUCCEEDED" | "FAILED")
    }
}

/// Returns the token that Ray's own clients also send.
fn token() -> Option<String> {
    if variable("RAY_AUTH_MODE").is_some_and(|mode| mode == "disabled") {
        return None;
    }
    let of = |path: &Path| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let file = || variable("RAY_AUTH_TOKEN_PATH").and_then(|path| of(Path::new(&path)));
    let usual = || variable("HOME").and_then(|home| of(&Path::new(&home).join(".ray/auth_token")));
    variable("RAY_AUTH_TOKEN").or_else(file).or_else(usual).filter(|token| !token.is_empty())
}

impl Head {
    fn of(wanted: &Wanted<'_>) -> Self {
        let of_variable = |name: &str| variable(name).filter(|url| url.starts_with("http"));
        let stated = wanted.ray.map(str::to_owned);
        let url = stated.or_else(|| of_variable("RAY_API_SERVER_ADDRESS")).or_else(|| of_variable("RAY_ADDRESS"));
        let url = url.unwrap_or_else(|| USUAL.to_owned());
        Self { url: url.trim_end_matches('/').to_owned(), token: token() }
    }

    /// Sends a request and returns the answer. The error is the reason if the request fails.
    fn ask(&self, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let url = format!("{}/api/jobs/{path}", self.url);
        let request = match body {
            Some(body) => minreq::post(url).with_header("Content-Type", "application/json").with_body(body.to_string()),
            None => minreq::get(url),
        };
        let request = request.with_timeout(LONGEST_ANSWER_S).with_max_redirects(0);
        let request = match &self.token {
            Some(token) => request.with_header("Authorization", format!("Bearer {token}")),
            None => request,
        };
        let answer = request.send().map_err(|error| error.to_string())?;
        let text = answer.as_str().unwrap_or_default();
        if answer.status_code != 200 {
            let said = text.trim().lines().next_back().unwrap_or_default();
            return Err(format!("{} {}: {said}", answer.status_code, answer.reason_phrase));
        }
        serde_json::from_str(text).map_err(|_| "its answer is not an answer of Ray".to_owned())
    }

    fn job(&self, id: &str) -> Result<Job, String> {
        serde_json::from_value(self.ask(id, None)?).map_err(|error| error.to_string())
    }

    fn failed(&self, reason: &str) -> WorkerError {
        let hint = if reason.starts_with("401") || reason.starts_with("403") {
            "set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH, to the token of that cluster"
        } else if self.url.starts_with("https") {
            "only http:// is spoken: reach the head by a tunnel, such as ssh -L 8265:127.0.0.1:8265 HEAD"
        } else {
            "does the head run, and is it there? Write ray = \"http://HEAD:8265\" in [machine]"
        };
        WorkerError::new(format!("Ray's jobs API at {} does not help: {reason}", self.url), hint)
    }
}

/// Returns the address of this machine on the route to the cluster's head.
fn address(wanted: &Wanted<'_>) -> Result<String, WorkerError> {
    let head = Head::of(wanted);
    let host = head.url.trim_start_matches("http://").split('/').next().unwrap_or_default().to_owned();
    let host = if host.contains(':') { host } else { format!("{host}:80") };
    let own = || {
        // Nothing is sent: the kernel only chooses the route (connect(2)).
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(&host)?;
        socket.local_addr()
    };
    own().map(|own| format!("{}:0", own.ip())).map_err(|error| head.failed(&error.to_string()))
}

/// Submits a job per worker. A shell passes on the token from its environment by a pipe, so no command line and no probe has it.
fn call(wanted: &Wanted<'_>, at: SocketAddr, token: &Token) -> Called {
    let head = Head::of(wanted);
    let name = Token::fresh().map(|random| random.digits()[..12].to_owned());
    let name = name.map_err(|error| head.failed(&error.to_string()))?;
    let gputune = quoted(&wanted.gputune.display().to_string());
    let entrypoint = format!(
        "printf %s \"$GPUTUNE_TOKEN\" | env -u GPUTUNE_TOKEN {gputune} worker --dial {at} --token-file /dev/stdin"
    );
    let mut jobs = Jobs { head: head.clone(), ids: Vec::new(), is_stopped: false };
    for number in 1..=wanted.workers {
        let id = format!("gputune-{name}-{number}");
        let mut job = json!({
            "submission_id": id,
            "entrypoint": entrypoint,
            "runtime_env": {"env_vars": {"GPUTUNE_TOKEN": token.digits()}},
            "metadata": {"job_name": "gputune worker"},
        });
        let (gpus, cores) = wanted.each;
        for (key, count) in [("entrypoint_num_gpus", gpus), ("entrypoint_num_cpus", cores)] {
            if let Some(count) = count {
                job[key] = json!(count);
            }
        }
        // A job may have started even if its submission got no answer.
        jobs.ids.push(id);
        head.ask("", Some(&job)).map_err(|reason| head.failed(&reason))?;
    }
    Ok(Some(Box::new(jobs)))
}

struct Jobs {
    head: Head,
    ids: Vec<String>,
    is_stopped: bool,
}

impl Workers for Jobs {
    fn have_failed(&mut self) -> Option<String> {
        let over = |id: &String| self.head.job(id).ok().filter(Job::is_over);
        let ended: Option<Vec<Job>> = self.ids.iter().map(over).collect();
        let last = ended?.pop()?;
        let said = self.head.ask(&format!("{}/logs", self.ids.last()?), None).unwrap_or_default();
        let log = said["logs"].as_str().unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        let message = last.message.unwrap_or_default();
        let message = message.lines().next().unwrap_or_default();
        Some(format!("all jobs are over, the last {}: {message} {}", last.status, lines.join(" | ")))
    }

    fn stop(&mut self) -> Option<String> {
        self.is_stopped = true;
        let begin = Instant::now();
        let mut left: Vec<&String> = self.ids.iter().collect();
        let mut is_asked = false;
        loop {
            // A job whose state is unknown may have started.
            left.retain(|id| match self.head.job(id) {
                Ok(job) => !job.is_over(),
                Err(reason) => !reason.starts_with("404"),
            });
            if left.is_empty() {
                return None;
            }
            if !is_asked {
                for id in &left {
                    let _ = self.head.ask(&format!("{id}/stop"), Some(&json!({})));
                }
                is_asked = true;
            }
            if begin.elapsed() > LONGEST_END {
                let left: Vec<&str> = left.iter().map(|id| id.as_str()).collect();
                return Some(format!("jobs of Ray have not ended: {}", left.join(", ")));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        if !self.is_stopped {
            let _ = self.stop();
        }
    }
}
