"""A cluster of its own process, for demonstrations: `python -m apiserver`, in the folder above, until SIGTERM.

It writes a kubeconfig file when it is ready, and says on one line where it is.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import threading
from pathlib import Path

# The packages of this checkout, where they are not installed.
sys.path.append(str(Path(__file__).parents[3]))

from apiserver.cluster import Node, running_cluster


def main() -> None:
    """Run a cluster until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="apiserver", description="A small Kubernetes cluster on this machine.")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="file to write, for kubectl and other clients")
    parser.add_argument("--nodes", type=int, default=2, help="how many there are (default: 2)")
    parser.add_argument("--gpus", type=int, default=4, help="of each node (default: 4)")
    parser.add_argument("--kubelet", choices=("pretend", "processes"), default="processes", help="what containers are")
    parser.add_argument("--image", action="append", default=[], metavar="NAME=COMMAND", help="entry point of an image")
    parser.add_argument("--seed", type=int, default=0, help="of the names of pods (default: 0)")
    asked = parser.parse_args()
    images = {}
    for each in asked.image:
        name, equals, command = each.partition("=")
        if not equals or not command.split():
            parser.error(f"--image {each}: say NAME=COMMAND")
        images[name] = command.split()
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    nodes = [Node(f"node-{number}", gpus=asked.gpus) for number in range(asked.nodes)]
    with running_cluster(nodes, asked.kubelet, seed=asked.seed, images=images) as cluster:
        # A client that waits for the file never finds half of it.
        part = asked.kubeconfig.with_name(asked.kubeconfig.name + ".part")
        part.touch(mode=0o600)
        shutil.copyfile(cluster.kubeconfig, part)
        part.replace(asked.kubeconfig)
        print(f"cluster of {asked.nodes} nodes at {cluster.server.secure_address}", flush=True)
        over.wait()


if __name__ == "__main__":
    main()
