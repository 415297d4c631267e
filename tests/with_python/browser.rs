//! `report.html` in headless Chromium: real pages of kept searches, small, large, hostile and without a result.
#![expect(clippy::unwrap_used, reason = "tests")]

use crate::support::{gputune, kept};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use gputune::model::{Failure, Line, Memory, Objective, Outcome, Purpose};

/// Writes the page of a kept search with the real binary.
fn page(folder: &Path) -> PathBuf {
    let output = Command::new(gputune()).args(["report", "--format", "html"]).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder.join("report.html").canonicalize().unwrap()
}

/// Writes the files of trials that lie next to the journal.
fn keep_more(folder: &Path, trials: u32, log: &[u8]) {
    fs::create_dir_all(folder.join("logs")).unwrap();
    fs::create_dir_all(folder.join("timelines")).unwrap();
    let timeline = r#"{"every_s":0.5,"throughput":[null,900.0,1200.0],"cpu_cores":[0.5,3.0,3.1],"host_memory_bytes":[null,null,null],"gpus":{"sm_active":[null,0.4,0.5]}}"#;
    for trial in 1..=trials {
        fs::write(folder.join(format!("logs/{trial:04}.log")), log).unwrap();
        fs::write(folder.join(format!("timelines/{trial:04}.json")), timeline).unwrap();
    }
}

/// Adds trials up to this number. Waiting for the disk after each trial would take too long.
fn grow(folder: &Path, trials: u32) {
    let journal = folder.join("journal.jsonl");
    let first = u32::try_from(fs::read_to_string(&journal).unwrap().lines().count()).unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(&journal).unwrap();
    for trial in first..=trials {
        let batch = 8 << (trial % 7);
        let config = kept::settings(batch, i64::from(trial / 7 % 9), if trial % 2 == 0 { "fp32" } else { "bf16" });
        let outcome = match trial % 11 {
            0 => Outcome::OutOfMemory { memory: Memory::Device, failure: Failure::new("CUDA out of memory") },
            1 => Outcome::Crashed(Failure::new("exit code 1")),
            _ => Outcome::Measured(kept::measured(300.0 + f64::from(trial * 7919 % 850), 8 << (trial % 7))),
        };
        let (purpose, why) = (Purpose::Search, Some("a reason".to_owned()));
        let line = Line {
            trial,
            purpose,
            config,
            why,
            as_it_is: None,
            expected_gain: None,
            elapsed_s: 2.0,
            ended_at: None,
            slot: None,
            outcome,
        };
        writeln!(file, "{}", serde_json::to_string(&line).unwrap()).unwrap();
    }
}

/// Replaces a value, a metric's name, the device and printed text by a text that tries to run. Parameter names cannot hold such a
/// text.
fn make_hostile(folder: &Path) {
    let hostile = "</script><img src=x onerror='window.hacked=1'><!--\u{2028}<script>window.hacked=1</script>";
    let quoted = serde_json::to_string(hostile).unwrap();
    for file in ["journal.jsonl", "study.json"] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let text = text.replace("\"bf16\"", &quoted).replace("\"loss\"", &quoted).replace("exit code 1", hostile);
        fs::write(folder.join(file), text.replace("NVIDIA Test", hostile).replace("runs/train.toml", hostile)).unwrap();
    }
    let mut log = vec![b'x'; 10 << 20];
    log.extend(b"\n\x1b[31m\xff\xfe\x00 </script><img src=x onerror=window.hacked=1>\r\nthe last line\n");
    keep_more(folder, 1, &log);
    keep_more(folder, 2, &log);
}

#[test]
fn pages_work_in_a_browser() {
    for program in ["chromedriver", "chromium", "python3"] {
        if Command::new(program).arg("--version").output().is_err() {
            println!("SKIPPED: the report in a browser: there is no {program} (Debian: chromium-driver)");
            return;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    kept::write(&at("few"));
    keep_more(&at("few"), 9, b"epoch 1\nthe last line\n");
    kept::write_front(&at("front"));
    kept::write(&at("many"));
    grow(&at("many"), 2000);
    keep_more(&at("many"), 2000, b"epoch 1\nthe last line\n");
    kept::write(&at("hostile"));
    make_hostile(&at("hostile"));
    let failed = Outcome::Crashed(Failure::new("exit code 1: no"));
    let nothing = [(Purpose::Baseline, kept::settings(32, 0, "fp32"), failed)];
    kept::write_with(&at("nothing"), &Objective::default(), &nothing, None);
    let pages = [
        ("trials-9", "few"),
        ("front", "front"),
        ("trials-2000", "many"),
        ("hostile", "hostile"),
        ("nothing", "nothing"),
    ];
    let mut arguments = Vec::new();
    for (kind, name) in pages {
        let path = page(&at(name));
        let size = fs::metadata(&path).unwrap().len();
        println!("{name}: {} KiB", size >> 10);
        assert!(size < 8 << 20, "{name} has {size} bytes");
        arguments.push(format!("{kind}={}", path.display()));
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/browser.py");
    let output = Command::new("python3").arg(script).args(&arguments).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
}
