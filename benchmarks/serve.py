"""Load test of `elmore serve` on this machine, relative to `elmore embed` in the same minutes.

Run as: python benchmarks/serve.py [--requests 100000] [--clients 64] [--format npy] [--workers 1]

Clients send requests of one sentence with 20 words, each as soon as its last one is answered. All
traffic is on the loopback interface, and every phase is bounded.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from urllib.request import urlopen

CORPUS = Path(__file__).parents[1] / "examples" / "corpus.txt"
WORDS = 20


def main() -> None:
    """Start a server and run all phases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--format", default="npy", choices=["npy", "json", "arrow"])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    sentences = make_sentences(args.requests)
    sample = sentences[:2000]
    before = embed_speed(sample)
    # A queue that holds all clients, but not three times as many.
    options = ["--workers", str(args.workers), "--max-queue", str(2 * args.clients * WORDS)]
    server = start(*options, *(["--threads", str(args.threads)] if args.threads else []))
    try:
        load = Load(server, sentences, args.format)
        asyncio.run(load.run(1, 20))  # until threads and memory are warm
        single = asyncio.run(load.run(1, 100))
        print(f"1 client: {single}")
        seconds = cpu_seconds(server)
        crowd = run_in_quarters(load, args.clients, args.requests)
        pairs = zip(seconds, cpu_seconds(server), strict=True)
        used = [1000 * (after - before) / args.requests for before, after in pairs]
        print(f"{args.clients} clients: {crowd}")
        print(f"CPU time per request: HTTP {used[0]:.1f} ms, workers {sum(used[1:]):.1f} ms")
        single_after = asyncio.run(load.run(1, 100))
        print(f"1 client: {single_after}")
        latency = statistics.median([*single.latencies, *single_after.latencies])
        after = embed_speed(sample)
        print(f"elmore embed: {before:,.0f} words/s before, {after:,.0f} after")
        ratio = crowd.words_per_second / statistics.mean([before, after])
        print(f"words/s relative to elmore embed: {ratio:.2f} (goal: at least 0.70)")
        print(f"p99 relative to 1 client: {crowd.p99 / latency:.1f} (goal: at most 10)")
        failed = sum(n for status, n in crowd.statuses.items() if status != 200)
        print(f"errors: {failed} (goal: 0)")
        overload(load, 3 * args.clients, min(args.requests, 4000), latency)
        kill_worker(load)
        print_batches(server)
    finally:
        stop(server)


def run_in_quarters(load: "Load", clients: int, requests: int) -> "Result":
    """Send the requests, and print the memory after each quarter of them."""
    print_memory(load.server, 0)
    results = []
    for quarter in range(1, 5):
        size = requests * quarter // 4 - requests * (quarter - 1) // 4
        results.append(asyncio.run(load.run(clients, size)))
        print_memory(load.server, 25 * quarter)
    statuses: Counter = sum((Counter(r.statuses) for r in results), Counter())
    latencies = [latency for r in results for latency in r.latencies]
    return Result(latencies, statuses, sum(r.seconds for r in results))


def print_memory(server: "Server", percent: int) -> None:
    """Print the resident memory of the HTTP process and of the workers."""
    http, *workers = (memory_of(pid) for pid in processes(server))
    print(f"memory at {percent} % of the requests: HTTP {http:.0f} MB, workers {sum(workers):.0f}")


def make_sentences(count: int) -> list[str]:
    """Return sentences of 20 words from the sample corpus, each different."""
    words = [w for line in CORPUS.read_text().splitlines() for w in line.split() if w.isalpha()]
    source = random.Random(0)
    return [" ".join(source.choices(words, k=WORDS)) for _ in range(count)]


def embed_speed(sentences: list[str]) -> float:
    """Return the words/s of `elmore embed`, all layers to Arrow, without the time to load."""
    seconds = embed_seconds(sentences) - embed_seconds(sentences[:1])
    return (len(sentences) - 1) * WORDS / seconds


def embed_seconds(sentences: list[str]) -> float:
    """Return the seconds that `elmore embed` reports, which include loading the model."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        text.write_text("\n".join(sentences) + "\n")
        command = [sys.executable, "-m", "elmore", "embed", text, "-o", Path(folder, "x.arrow")]
        out = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True)
        return json.loads(out.stdout)["seconds"]


class Server:
    """A running server: its process, host and port."""

    def __init__(self, process: subprocess.Popen, address: str) -> None:
        self.process, self.address = process, address
        self.port = int(address.rpartition(":")[2])


def start(*options: str) -> Server:
    """Start a server and wait until its corpus is embedded."""
    command = [sys.executable, "-m", "elmore", "serve", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    server = Server(process, process.stdout.readline().split()[0])
    body = json.dumps({"word": {"text": "a [play]"}}).encode()
    while asyncio.run(send_once(server, "/v1/neighbors", body)) != 200:
        time.sleep(1)
    return server


def stop(server: Server) -> None:
    """Stop a server with SIGTERM."""
    server.process.send_signal(signal.SIGTERM)
    print(f"exit code after SIGTERM: {server.process.wait(60)}")


class Result:
    """Latencies and statuses of a phase."""

    def __init__(self, latencies: list[float], statuses: Counter, seconds: float) -> None:
        self.latencies = latencies
        ordered = sorted(latencies) or [float("nan")]
        self.statuses, self.seconds = dict(statuses), seconds
        self.median = statistics.median(ordered)
        self.p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
        self.words_per_second = statuses[200] * WORDS / seconds

    def __str__(self) -> str:
        return (
            f"{self.words_per_second:,.0f} words/s, median {1000 * self.median:.0f} ms, "
            f"p99 {1000 * self.p99:.0f} ms, statuses {self.statuses}, {self.seconds:.1f} s"
        )


class Load:
    """Clients that keep their connections open."""

    def __init__(self, server: Server, sentences: list[str], form: str) -> None:
        self.server = server
        self._next = 0
        self.bodies = [json.dumps({"texts": [s], "format": form}).encode() for s in sentences]

    async def run(self, clients: int, requests: int) -> Result:
        """Send a number of requests from concurrent clients."""
        numbers = iter(range(self._next, self._next + requests))
        self._next += requests
        latencies: list[float] = []
        statuses: Counter = Counter()

        async def client() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
            for n in numbers:
                started = time.perf_counter()
                status = await send(reader, writer, "/v1/embed", self.bodies[n % len(self.bodies)])
                statuses[status] += 1
                if status == 200:
                    latencies.append(time.perf_counter() - started)
                else:
                    await asyncio.sleep(1)  # what Retry-After says, or nearly
            writer.close()

        started = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        return Result(latencies, statuses, time.perf_counter() - started)


async def send(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes
) -> int:
    """Send a request, read its response, and return the status."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    await reader.readexactly(int(answer.partition("content-length: ")[2].partition("\r")[0]))
    return int(answer.split()[1])


async def send_once(server: Server, path: str, body: bytes) -> int:
    """Send one request on a new connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    status = await send(reader, writer, path, body)
    writer.close()
    return status


def processes(server: Server) -> list[int]:
    """Return the server's process and its workers, without multiprocessing's resource tracker."""
    tasks = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    children = [int(pid) for file in tasks for pid in file.read_text().split()]
    workers = [p for p in children if "spawn_main" in Path(f"/proc/{p}/cmdline").read_text()]
    return [server.process.pid, *workers]


def memory_of(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(server: Server) -> list[float]:
    """Return the CPU time of the HTTP process and of each worker."""
    stats = [Path(f"/proc/{p}/stat").read_text().rpartition(")")[2] for p in processes(server)]
    ticks = [sum(map(int, stat.split()[11:13])) for stat in stats]
    return [n / os.sysconf("SC_CLK_TCK") for n in ticks]


def overload(load: Load, clients: int, requests: int, normal: float) -> None:
    """Send three times the load, then measure when the latency of one client is normal again."""
    print(f"{clients} clients: {asyncio.run(load.run(clients, requests))}")
    started = time.perf_counter()
    while time.perf_counter() < started + 60:
        one = asyncio.run(load.run(1, 1))
        if one.statuses == {200: 1} and one.median < 1.5 * normal:
            break
    seconds = time.perf_counter() - started
    print(f"normal latency again {seconds:.1f} s after the overload (goal: at most 5)")


def kill_worker(load: Load) -> None:
    """Kill a worker under load and measure when the next request is answered."""

    async def run() -> tuple[Result, float]:
        phase = asyncio.create_task(load.run(8, 200))
        await asyncio.sleep(0.5)
        os.kill(processes(load.server)[-1], signal.SIGKILL)
        started = time.perf_counter()
        await send_once(load.server, "/v1/embed", load.bodies[0])
        recovered = time.perf_counter() - started
        return await phase, recovered

    result, recovered = asyncio.run(run())
    print(f"kill -9 of a worker under 8 clients: answers again after {recovered:.1f} s ", end="")
    print(f"(goal: at most 10), statuses {result.statuses}")


def print_batches(server: Server) -> None:
    """Print the average size of a batch."""
    with urlopen(f"{server.address}/metrics") as response:
        lines = dict(line.rsplit(" ", 1) for line in response.read().decode().splitlines())
    requests, batches = (float(lines[f"elmore_batch_requests_{k}"]) for k in ("sum", "count"))
    print(f"requests per batch: {requests / batches:.1f}")


if __name__ == "__main__":
    main()
