#!/usr/bin/env python3
"""A stand-in for the kubelet, the GPU plugin and the cluster's DNS: it registers a node with GPUs and runs pods as processes.

usage: kubelet.py SERVER TOKEN NODE GPUS ADDRESS ROOT

Each pod has its own mounts, processes and host name; not its own network (its address is this machine's, which must not be on
loopback: Kubernetes takes no such endpoints) or file system: its image is what there is here. Secrets, maps, claims (folders of ROOT/claims) and emptyDirs are mounted as the pod says; names of headless
services are in its /etc/hosts. Its output is ROOT/logs/POD. Needs root, `unshare`, and nothing but Python's own library.
"""

import base64
import datetime
import json
import os
import shlex
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

SERVER, TOKEN, NODE, GPUS, ADDRESS, ROOT = sys.argv[1:7]
CONTEXT = ssl._create_unverified_context()
PRIVATE = ("/run", "/mnt")  # what a pod finds empty, so that its mount points need not be made here
free = set(range(int(GPUS)))
free_lock = threading.Lock()
processes = {}
ending = set()


def ask(method, path, body=None, kind="application/json", timeout=30):
    request = urllib.request.Request(SERVER + path, method=method, data=None if body is None else json.dumps(body).encode())
    request.add_header("Authorization", "Bearer " + TOKEN)
    request.add_header("Content-Type", kind)
    return urllib.request.urlopen(request, context=CONTEXT, timeout=timeout)


def told(method, path, body=None, kind="application/json"):
    with ask(method, path, body, kind) as answer:
        return json.load(answer)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def register():
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}}
    try:
        told("POST", "/api/v1/nodes", node)
    except urllib.error.HTTPError as error:
        if error.code != 409:
            raise
    has = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": GPUS}
    while True:
        ready = {"type": "Ready", "status": "True", "reason": "StandIn", "lastHeartbeatTime": now(), "lastTransitionTime": now()}
        status = {"capacity": has, "allocatable": has, "conditions": [ready], "addresses": [{"type": "InternalIP", "address": ADDRESS}]}
        try:
            told("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": status}, "application/merge-patch+json")
            told("PATCH", f"/api/v1/nodes/{NODE}", {"spec": {"taints": []}}, "application/merge-patch+json")
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(5)


def keep_names():
    """Keeps the names of headless services in each pod's hosts."""
    while True:
        try:
            lines = ["127.0.0.1 localhost"]
            for item in told("GET", "/api/v1/endpoints")["items"]:
                name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
                for subset in item.get("subsets") or []:
                    for address in (subset.get("addresses") or []) + (subset.get("notReadyAddresses") or []):
                        lines.append(f"{address['ip']} {name} {name}.{namespace} {name}.{namespace}.svc")
            with open(f"{ROOT}/hosts", "r+") as hosts:  # the same file, since it is mounted
                hosts.truncate()
                hosts.write("\n".join(lines) + "\n")
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.3)


def report(pod, phase, state):
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    container = pod["spec"]["containers"][0]
    is_ready = "True" if phase == "Running" else "False"
    seen = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0, "ready": phase == "Running", "state": state}
    status = {"phase": phase, "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}], "hostIP": ADDRESS, "startTime": now(),
              "conditions": [{"type": "Ready", "status": is_ready}], "containerStatuses": [seen]}
    try:
        told("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status}, "application/merge-patch+json")
    except urllib.error.URLError:
        pass  # it is gone


def volume(pod, volume, folder):
    """The folder of a volume; `None` for one in memory."""
    namespace, place = pod["metadata"]["namespace"], f"{folder}/{volume['name']}"
    if "persistentVolumeClaim" in volume:
        place = f"{ROOT}/claims/{volume['persistentVolumeClaim']['claimName']}"
    if "emptyDir" in volume and volume["emptyDir"].get("medium") == "Memory":
        return None
    os.makedirs(place, exist_ok=True)
    if "secret" in volume:
        data = told("GET", f"/api/v1/namespaces/{namespace}/secrets/{volume['secret']['secretName']}").get("data") or {}
        mode = volume["secret"].get("defaultMode", 0o644)
        files = {key: (base64.b64decode(value), mode) for key, value in data.items()}
    elif "configMap" in volume:
        data = told("GET", f"/api/v1/namespaces/{namespace}/configmaps/{volume['configMap']['name']}").get("data") or {}
        files = {key: (value.encode(), 0o644) for key, value in data.items()}
    else:
        files = {}
    for key, (value, mode) in files.items():
        with open(f"{place}/{key}", "wb") as file:
            file.write(value)
        os.chmod(f"{place}/{key}", mode)
    return place


def script(pod, container, folder):
    """What makes the pod's mounts."""
    lines = ["set -e", "mount --make-rprivate /", f"hostname {pod['metadata']['name']}", f"mount --bind {ROOT}/hosts /etc/hosts"]
    lines += [f"mount -t tmpfs none {path}" for path in PRIVATE]
    places = {it["name"]: volume(pod, it, folder) for it in pod["spec"].get("volumes") or []}
    for mount in container.get("volumeMounts") or []:
        path, place = shlex.quote(mount["mountPath"]), places[mount["name"]]
        if place is None:
            lines.append(f"mount -t tmpfs none {path}")
        elif "subPath" in mount:
            lines.append(f"[ -e {path} ] || : > {path}; mount --bind {shlex.quote(place + '/' + mount['subPath'])} {path}")
        else:
            lines.append(f"mkdir -p {path}; mount --bind {shlex.quote(place)} {path}")
    lines.append(f"cd {shlex.quote(container.get('workingDir', '/'))}")
    lines.append('exec "$@"')
    return "\n".join(lines)


def run(pod):
    uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
    container = pod["spec"]["containers"][0]
    limits = (container.get("resources") or {}).get("limits") or {}
    with free_lock:
        gpus = [free.pop() for _ in range(int(limits.get("nvidia.com/gpu", 0)))]
    folder = f"{ROOT}/pods/{uid}"
    os.makedirs(folder)
    try:
        while True:
            try:
                mounts = script(pod, container, folder)
                break
            except urllib.error.HTTPError:
                if uid in ending:
                    return
                time.sleep(0.5)  # a secret or map is not there yet
        environment = dict(os.environ, CUDA_VISIBLE_DEVICES=",".join(map(str, sorted(gpus))), HOSTNAME=name)
        for variable in container.get("env") or []:
            source = (variable.get("valueFrom") or {}).get("fieldRef", {}).get("fieldPath")
            environment[variable["name"]] = {"status.podIP": ADDRESS, "metadata.name": name}.get(source, variable.get("value", ""))
        words = (container.get("command") or []) + (container.get("args") or [])
        for key, value in environment.items():
            words = [word.replace(f"$({key})", value) for word in words]
        alone = ["unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
        began = now()
        with open(f"{ROOT}/logs/{name}", "wb") as log:
            command = alone + ["sh", "-c", mounts, "sh"] + words
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        processes[uid] = process
        report(pod, "Running", {"running": {"startedAt": began}})
        code = process.wait()
        code = 128 - code if code < 0 else code
        end = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "startedAt": began, "finishedAt": now()}
        report(pod, "Failed" if code else "Succeeded", {"terminated": end})
    finally:
        with free_lock:
            free.update(gpus)


def end(pod):
    """SIGTERM to the pod's first process, and SIGKILL after the time of grace; then the pod is gone."""
    metadata = pod["metadata"]
    process = processes.get(metadata["uid"])
    if process and process.poll() is None:
        children = open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()
        for child in children:
            os.kill(int(child), signal.SIGTERM)
        try:
            process.wait(metadata.get("deletionGracePeriodSeconds") or 1)
        except subprocess.TimeoutExpired:
            process.kill()
    try:
        told("DELETE", f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}", {"gracePeriodSeconds": 0})
    except urllib.error.HTTPError:
        pass


def serve():
    started = set()
    while True:
        try:
            with ask("GET", f"/api/v1/pods?watch=true&fieldSelector=spec.nodeName={NODE}", timeout=300) as stream:
                for line in stream:
                    event = json.loads(line)
                    pod = event["object"]
                    uid = pod["metadata"]["uid"]
                    if event["type"] in ("DELETED", "ERROR"):
                        continue
                    if pod["metadata"].get("deletionTimestamp"):
                        if uid not in ending:
                            ending.add(uid)
                            threading.Thread(target=end, args=(pod,), daemon=True).start()
                    elif uid not in started and pod["status"].get("phase") == "Pending":
                        started.add(uid)
                        threading.Thread(target=run, args=(pod,), daemon=True).start()
        except (urllib.error.URLError, OSError, ValueError) as error:
            print("watch:", error, file=sys.stderr)
            time.sleep(0.5)


def main():
    for folder in ("logs", "pods", "claims"):
        os.makedirs(f"{ROOT}/{folder}", exist_ok=True)
    with open(f"{ROOT}/hosts", "w") as hosts:
        hosts.write("127.0.0.1 localhost\n")
    for task in (register, keep_names):
        threading.Thread(target=task, daemon=True).start()
    serve()


main()
