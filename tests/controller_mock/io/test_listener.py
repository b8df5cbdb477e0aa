"""A listener under a flood: the kernel queues it, and want of descriptors is told briefly."""

import json
import subprocess
import sys

PREAMBLE = """
import asyncio, json, resource, socket
from controller_mock.io.listener import Handles, listen

class Crowd:
    def __init__(self): self.seen = 0
    def connection_made(self, connection):
        self.seen += 1
        return True
    def connection_lost(self, connection): pass

CALLERS = 100
"""
QUEUE = """
async def main():
    listener = await listen(Crowd(), Handles())
    # The loop stands still: whoever gets in now waits in the kernel's queue.
    address = (listener.bound.host, listener.bound.port)
    callers = [socket.create_connection(address, timeout=20) for _ in range(CALLERS)]
    print(json.dumps(len(callers)))

asyncio.run(main())
"""
SCARCE = """
async def main():
    crowd = Crowd()
    listener = await listen(crowd, Handles())
    told, turn_over = [], asyncio.Event()

    def tell(loop, context):
        if not told:
            loop.call_soon(turn_over.set)
        told.append(context["message"])

    asyncio.get_running_loop().set_exception_handler(tell)
    address = (listener.bound.host, listener.bound.port)
    callers = [socket.create_connection(address) for _ in range(CALLERS)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (callers[-1].fileno() + 3,) * 2)
    await turn_over.wait()
    while callers:
        callers.pop().close()
    while crowd.seen < CALLERS:
        await asyncio.sleep(0)
    print(json.dumps(len(told)))

asyncio.run(main())
"""


def run(script: str) -> object:
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + script], capture_output=True, timeout=60, check=True
    )
    return json.loads(done.stdout)


def test_burst_of_connections_waits_in_the_queue_of_the_kernel() -> None:
    assert run(QUEUE) == 100


def test_want_of_descriptors_is_told_a_few_times_and_passes() -> None:
    told = run(SCARCE)

    assert isinstance(told, int)
    assert 1 <= told <= 100
