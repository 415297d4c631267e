//! A training step for tests: it runs its arguments one after the other, and misbehaves on demand.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result {
    let mut connections: BTreeMap<u64, UnixStream> = BTreeMap::new();
    let mut current = 0;
    for argument in std::env::args().skip(1) {
        let (word, rest) = argument.split_once(':').unwrap_or((&argument, ""));
        let numbers: Vec<u64> = rest.split(':').filter_map(|number| number.parse().ok()).collect();
        let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
        match word {
            // Tests find leftover processes by it.
            "token" => {}
            "send" => send(connection(&mut connections, current)?, rest)?,
            // Uses the connection of this number from here on.
            "on" => current = number(0),
            "close" => drop(connections.remove(&current)),
            "await-order" => {
                let mut order = String::new();
                BufReader::new(connection(&mut connections, current)?).read_line(&mut order)?;
                println!("order: {}", order.trim());
            }
            // steps:COUNT:SAMPLES:MICROSECONDS
            "steps" => {
                for _ in 0..number(0) {
                    std::thread::sleep(Duration::from_micros(number(2)));
                    step(connection(&mut connections, current)?, number(1))?;
                }
            }
            // forever:SAMPLES:MICROSECONDS
            "forever" => loop {
                std::thread::sleep(Duration::from_micros(number(1)));
                step(connection(&mut connections, current)?, number(0))?;
            },
            "tick" => loop {
                std::fs::OpenOptions::new().create(true).append(true).open(rest)?.write_all(b".")?;
                std::thread::sleep(Duration::from_millis(10));
            },
            // burning:SAMPLES:MICROSECONDS of CPU time in each step
            "burning" => loop {
                burn(Duration::from_micros(number(1)));
                step(connection(&mut connections, current)?, number(0))?;
            },
            // forking:SAMPLES:MICROSECONDS, in each step, in a child that ends
            "forking" => loop {
                let burning = format!("burn:{}", number(1));
                Command::new(std::env::current_exe()?).arg(burning).stdin(Stdio::null()).spawn()?.wait()?;
                step(connection(&mut connections, current)?, number(0))?;
            },
            "burn" => burn(Duration::from_micros(number(0))),
            // reading:PATH, from storage, in each step
            "reading" => loop {
                read_from_storage(rest)?;
                step(connection(&mut connections, current)?, 1)?;
            },
            // pid:FILE
            "pid" => write_whole(rest, &std::process::id().to_string())?,
            "touch" => write_whole(rest, "")?,
            "print" => println!("{rest}"),
            "complain" => eprintln!("{rest}"),
            "bytes" => print_bytes(number(0))?,
            // eat:BYTES
            "eat" => drop(std::hint::black_box(vec![1_u8; usize::try_from(number(0))?])),
            // hold:BYTES, until the end
            "hold" => std::mem::forget(std::hint::black_box(vec![1_u8; usize::try_from(number(0))?])),
            // shared:NAME:BYTES, kept open
            "shared" => std::mem::forget(shared_file(rest)?),
            "sleep" => std::thread::sleep(Duration::from_millis(number(0))),
            // The socket's name is removed; connections stay.
            "unlink-socket" => std::fs::remove_file(std::env::var("GPUTUNE_SOCKET")?)?,
            "ignore-term" => drop(signal_hook::flag::register(15, Arc::new(AtomicBool::new(false)))?),
            "signal" => rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::from_named_raw(i32::try_from(number(0))?).ok_or("no such signal")?,
            )?,
            "daemon" => daemon(rest)?,
            "setsid" => drop(rustix::process::setsid()?),
            "exit" => leave(i32::try_from(number(0))?),
            "env" => println!("{}", std::env::var(rest)?),
            "cat" => print!("{}", std::fs::read_to_string(rest)?),
            "panic-if" if rest == "true" => panic!("as asked"),
            "panic-if" => {}
            _ => beside_others(word, rest, connection(&mut connections, current)?)?,
        }
    }
    Ok(())
}

fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).map_err(|error| format!("port {port}: {error}").into())
}

/// Writes a file as a whole or not at all.
fn write_whole(path: &str, text: &str) -> Result {
    let unfinished = format!("{path}.unfinished");
    std::fs::write(&unfinished, text)?;
    Ok(std::fs::rename(unfinished, path)?)
}

#[expect(clippy::exit, reason = "a step may end anywhere")]
fn leave(code: i32) -> ! {
    std::process::exit(code)
}

/// Returns the connection of a number; opens it on first use.
fn connection(connections: &mut BTreeMap<u64, UnixStream>, number: u64) -> Result<&mut UnixStream> {
    match connections.entry(number) {
        Entry::Occupied(open) => Ok(open.into_mut()),
        Entry::Vacant(place) => Ok(place.insert(UnixStream::connect(std::env::var("GPUTUNE_SOCKET")?)?)),
    }
}

fn send(socket: &mut UnixStream, line: &str) -> Result {
    socket.write_all(line.as_bytes())?;
    socket.write_all(b"\n")?;
    Ok(())
}

fn step(socket: &mut UnixStream, samples: u64) -> Result {
    send(socket, &format!("{{\"event\":\"step\",\"samples\":{samples}}}"))
}

/// Prints lines, some of which are not UTF-8.
fn print_bytes(count: u64) -> Result {
    let mut block = b"0123456789 \xff\xfe no utf-8 \xc3( and so on, and so on, and so on\n".repeat(1024);
    block.truncate(1 << 16);
    let mut stdout = std::io::stdout().lock();
    let mut left = count;
    while left > 0 {
        let part = usize::try_from(left.min(block.len() as u64))?;
        stdout.write_all(&block[..part])?;
        left -= part as u64;
    }
    Ok(stdout.flush()?)
}

/// Uses this much CPU time.
fn burn(time: Duration) {
    let used = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    };
    let begin = used();
    while used() < begin + time {
        std::hint::black_box((0..1000_u64).sum::<u64>());
    }
}

/// Runs the words of a step that shares the machine with other processes.
fn beside_others(word: &str, rest: &str, socket: &mut UnixStream) -> Result {
    match word {
        // obeying:SAMPLES:MICROSECONDS, and holds between two steps on request
        "obeying" => {
            let (samples, pause) = rest.split_once(':').ok_or("obeying:SAMPLES:MICROSECONDS")?;
            obey(socket, samples.parse()?, Duration::from_micros(pause.parse()?))
        }
        // burning-by:THREADS:SAMPLES:MICROSECONDS of CPU time of each thread in each step
        "burning-by" => {
            let numbers: Vec<u64> = rest.split(':').filter_map(|number| number.parse().ok()).collect();
            let [threads, samples, micros] = numbers[..] else {
                return Err("burning-by:THREADS:SAMPLES:MICROS".into());
            };
            loop {
                std::thread::scope(|scope| {
                    (0..threads).for_each(|_| drop(scope.spawn(|| burn(Duration::from_micros(micros)))));
                });
                step(socket, samples)?;
            }
        }
        // listen:PORT, until the end
        "listen" => {
            std::mem::forget(listen(rest.parse()?)?);
            Ok(())
        }
        // alone:PATH, or device memory runs out
        "alone" => alone(socket, rest),
        // ticking:PATH, in another process, which writes a byte each ten milliseconds
        "ticking" => {
            let tick = format!("tick:{rest}");
            drop(Command::new(std::env::current_exe()?).arg(tick).stdin(Stdio::null()).spawn()?);
            Ok(())
        }
        other => Err(format!("what is `{other}`?").into()),
    }
}

/// Trains until a stop order, like a process that speaks version 2 of the protocol.
fn obey(socket: &mut UnixStream, samples: u64, pause: Duration) -> Result {
    let mut orders = BufReader::new(socket.try_clone()?);
    send(socket, "{\"event\":\"hello\",\"orders\":true,\"version\":2}")?;
    let mut is_held = false;
    loop {
        if !is_held {
            std::thread::sleep(pause);
            step(socket, samples)?;
        }
        orders.get_ref().set_nonblocking(!is_held)?;
        let mut order = String::new();
        let heard = orders.read_line(&mut order);
        socket.set_nonblocking(false)?;
        match heard {
            Ok(0) => return Ok(()),
            Ok(_) if order.contains("hold") => {
                is_held = true;
                send(socket, "{\"event\":\"held\"}")?;
            }
            Ok(_) if order.contains("stop") => {
                send(socket, "{\"event\":\"done\"}")?;
                leave(0);
            }
            Ok(_) => is_held = false,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Continues only if no other process has locked the file.
fn alone(socket: &mut UnixStream, path: &str) -> Result {
    let file = std::fs::File::create(path)?;
    if file.try_lock().is_err() {
        send(socket, "{\"event\":\"error\",\"kind\":\"out_of_memory\",\"message\":\"the other has it\"}")?;
        leave(1);
    }
    std::mem::forget(file);
    Ok(())
}

/// Reads a file that the kernel has been asked to forget.
fn read_from_storage(path: &str) -> Result {
    let mut file = std::fs::File::open(path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    std::io::copy(&mut file, &mut std::io::sink())?;
    Ok(())
}

fn shared_file(rest: &str) -> Result<std::fs::File> {
    let (name, size) = rest.rsplit_once(':').ok_or("shared:NAME:BYTES")?;
    let mut file = std::fs::File::create(std::path::Path::new("/dev/shm").join(name))?;
    file.write_all(&vec![1; size.parse()?])?;
    Ok(file)
}

/// A grandchild in its own session, whose parent is gone, and which ignores SIGTERM.
fn daemon(token: &str) -> Result {
    let program = std::env::current_exe()?;
    let stage = std::env::var("CHILD_STAGE").unwrap_or_default();
    if stage.is_empty() {
        let mut middle = Command::new(program);
        middle.args(["setsid", &format!("daemon:{token}")]).env("CHILD_STAGE", "middle").spawn()?.wait()?;
    } else {
        Command::new(program)
            .args([&format!("token:{token}"), "ignore-term", "sleep:600000"])
            .env("CHILD_STAGE", "last")
            .stdin(Stdio::null())
            .spawn()?;
    }
    Ok(())
}
