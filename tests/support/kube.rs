//! A real Kubernetes on this machine without containers: API server, scheduler and controllers, and a stand-in for the kubelet.

use std::fs::{self, File};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The GPUs of its one node.
pub(crate) const GPUS: usize = 4;

const SERVERS: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// A cluster, which ends when dropped.
pub(crate) struct Kube {
    folder: tempfile::TempDir,
    processes: Vec<Child>,
}

/// Looks for a program in the folders of `GPUTUNE_TEST_KUBE` and of `PATH`.
fn found(program: &str) -> Option<PathBuf> {
    let own = std::env::var("GPUTUNE_TEST_KUBE").unwrap_or_default();
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = own.split(':').chain(path.split(':')).filter(|folder| !folder.is_empty());
    folders.map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

/// The address of this machine on its network.
fn address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?; // nothing is sent
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback()).then(|| ip.to_string())
}

impl Kube {
    /// Starts a cluster; returns `None` and prints the reason if that is impossible.
    pub(crate) fn start() -> Option<Self> {
        let others = ["kubectl", "openssl", "python3", "unshare"];
        let missing: Vec<&str> = SERVERS.into_iter().chain(others).filter(|program| found(program).is_none()).collect();
        let (is_root, address) = (rustix::process::geteuid().is_root(), address());
        let Some(address) = address.filter(|_| missing.is_empty() && is_root) else {
            eprintln!(
                "NOT RUN: no Kubernetes can be started here (missing: {}; or this is not root, or has no network)",
                missing.join(", ")
            );
            return None;
        };
        let folder = tempfile::Builder::new().prefix("kube-").tempdir_in("/tmp").unwrap();
        let mut kube = Self { folder, processes: Vec::new() };
        let ports: Vec<TcpListener> = (0..5).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port: Vec<u16> = ports.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        drop(ports);
        kube.keys(port[2]);
        let (client, peer) = (format!("http://127.0.0.1:{}", port[0]), format!("http://127.0.0.1:{}", port[1]));
        kube.serve(
            "etcd",
            &[
                "--data-dir=DIR/etcd".to_owned(),
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=default={peer}"),
                "--unsafe-no-fsync".to_owned(),
            ],
        );
        kube.serve(
            "kube-apiserver",
            &[
                format!("--etcd-servers={client}"),
                format!("--secure-port={}", port[2]),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--advertise-address={address}"),
                "--cert-dir=DIR".to_owned(),
                "--token-auth-file=DIR/tokens".to_owned(),
                "--authorization-mode=AlwaysAllow".to_owned(),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                "--service-account-key-file=DIR/key.pub".to_owned(),
                "--service-account-signing-key-file=DIR/key".to_owned(),
                "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
                "--disable-admission-plugins=ServiceAccount".to_owned(),
            ],
        );
        let deadline = Instant::now() + Duration::from_secs(240);
        while !kube.kubectl(&["get", "--raw", "/readyz"]).contains("ok") {
            assert!(Instant::now() < deadline, "the API server does not come up: {}", kube.log("kube-apiserver"));
            std::thread::sleep(Duration::from_millis(100));
        }
        let config = "--kubeconfig=DIR/config".to_owned();
        let alone = "--leader-elect=false".to_owned();
        let of =
            |port: u16| vec![config.clone(), alone.clone(), "--port=0".to_owned(), format!("--secure-port={port}")];
        let key = "--service-account-private-key-file=DIR/key".to_owned();
        kube.serve("kube-controller-manager", &[of(port[3]), vec![key]].concat());
        kube.serve("kube-scheduler", &of(port[4]));
        let kubelet = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand_in/kubelet.py");
        let words = [kubelet.display().to_string(), format!("https://127.0.0.1:{}", port[2]), "test".to_owned()];
        let node = ["gpu1".to_owned(), GPUS.to_string(), address, "DIR/node".to_owned()];
        fs::create_dir(kube.path("node")).unwrap();
        kube.serve("python3", &[words.to_vec(), node.to_vec()].concat());
        while !kube.kubectl(&["get", "nodes", "--no-headers"]).contains(" Ready") {
            assert!(Instant::now() < deadline, "the node does not come up: {}", kube.log("python3"));
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(kube)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn keys(&self, port: u16) {
        let mut make = Command::new("openssl");
        make.args(["genrsa", "-out"]).arg(self.path("key")).arg("2048").stderr(Stdio::null());
        assert!(make.status().unwrap().success());
        let mut public = Command::new("openssl");
        public.args(["rsa", "-pubout", "-in"]).arg(self.path("key")).arg("-out").arg(self.path("key.pub"));
        assert!(public.stderr(Stdio::null()).status().unwrap().success());
        fs::write(self.path("tokens"), "test,admin,admin,system:masters\n").unwrap();
        let config = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Config\",\"current-context\":\"c\",\
             \"clusters\":[{{\"name\":\"c\",\"cluster\":{{\"server\":\"https://127.0.0.1:{port}\",\"insecure-skip-tls-verify\":true}}}}],\
             \"users\":[{{\"name\":\"u\",\"user\":{{\"token\":\"test\"}}}}],\
             \"contexts\":[{{\"name\":\"c\",\"context\":{{\"cluster\":\"c\",\"user\":\"u\"}}}}]}}"
        );
        fs::write(self.path("config"), config).unwrap();
    }

    /// Starts a server, with `DIR` for this cluster's folder.
    fn serve(&mut self, program: &str, words: &[String]) {
        let folder = self.folder.path().display().to_string();
        let log = File::create(self.path(&format!("{program}.log"))).unwrap();
        let mut command = Command::new(found(program).unwrap());
        command.args(words.iter().map(|word| word.replace("DIR", &folder))).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.processes.push(command.spawn().unwrap());
    }

    fn log(&self, program: &str) -> String {
        fs::read_to_string(self.path(&format!("{program}.log"))).unwrap_or_default()
    }

    /// A command that talks to this cluster.
    pub(crate) fn with<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("KUBECONFIG", self.path("config"))
    }

    /// Returns the output of `kubectl`.
    pub(crate) fn kubectl(&self, words: &[&str]) -> String {
        let output = self.with(Command::new(found("kubectl").unwrap()).args(words)).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns all objects and the ends of the logs.
    pub(crate) fn all(&self) -> String {
        let what = self.kubectl(&["get", "jobs,pods,endpoints,events"]);
        let logs = SERVERS.map(|server| self.log(server));
        let last = |log: &String| log.lines().rev().take(5).collect::<Vec<_>>().join("\n");
        format!("{what}\n{}\n{}", logs.each_ref().map(last).join("\n"), self.log("python3"))
    }

    /// Makes a claim, and returns its folder.
    pub(crate) fn claim(&self, name: &str) -> PathBuf {
        let text = format!(
            "apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {name}}}\n\
             spec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteMany], storageClassName: \"\", hostPath: {{path: /nowhere}}, \
             claimRef: {{name: {name}, namespace: default}}}}\n\
             ---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\n\
             spec: {{storageClassName: \"\", volumeName: {name}, accessModes: [ReadWriteMany], resources: {{requests: {{storage: 1Gi}}}}}}\n"
        );
        fs::write(self.path("claim.yaml"), text).unwrap();
        self.kubectl(&["apply", "-f", &self.path("claim.yaml").display().to_string()]);
        let deadline = Instant::now() + Duration::from_secs(240);
        while !self.kubectl(&["get", "pvc", name, "--no-headers"]).contains("Bound") {
            assert!(Instant::now() < deadline, "the claim is not bound: {}", self.all());
            std::thread::sleep(Duration::from_millis(100));
        }
        self.path("node/claims").join(name)
    }

    /// Returns the output of the pods whose names begin with `pods`.
    pub(crate) fn printed(&self, pods: &str) -> String {
        let entries = fs::read_dir(self.path("node/logs")).into_iter().flatten().flatten();
        let mut logs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        logs.sort();
        let is_one = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(pods));
        logs.iter().filter(|path| is_one(path)).map(|path| fs::read_to_string(path).unwrap_or_default()).collect()
    }
}

impl Drop for Kube {
    fn drop(&mut self) {
        // The kubelet's pods have sessions of their own, and end with their jobs.
        self.kubectl(&["delete", "jobs", "--all", "--wait=false"]);
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.kubectl(&["get", "pods", "--no-headers", "-o", "name"]).contains("pod") && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(200));
        }
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
