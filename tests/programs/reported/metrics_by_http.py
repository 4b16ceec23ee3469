"""Each batch's loss is posted to a tracking server, whose reply takes 8 ms. FIXED=1: from a thread with a queue."""

import http.client
import http.server
import json
import multiprocessing
import queue
import threading
import time

from _common import FIXED, Classifier, Clock, tell

STEPS = 350


class Slow(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.008)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def serve(ports):
    server = http.server.HTTPServer(("127.0.0.1", 0), Slow)
    ports.put(server.server_port)
    server.serve_forever()


def post(connection, metrics):
    connection.request("POST", "/metrics", json.dumps(metrics))
    connection.getresponse().read()  # trouble


def drain(waiting, port):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while (metrics := waiting.get()) is not None:
        rows = [metrics]
        while not waiting.empty():
            rows.append(waiting.get())
        post(connection, [row for row in rows if row is not None])


def main():
    training, posting = Classifier(), Clock()
    context = multiprocessing.get_context("fork")
    ports = context.Queue()
    server = context.Process(target=serve, args=(ports,), daemon=True)
    server.start()
    port, waiting = ports.get(), queue.SimpleQueue()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    if FIXED:
        threading.Thread(target=drain, args=(waiting, port), daemon=True).start()
    started = time.perf_counter_ns()
    for step in range(STEPS * (4 if FIXED else 1)):
        loss = training.step(*training.batch())
        with posting:
            metrics = {"step": step, "loss": loss.item()}
            if FIXED:
                waiting.put(metrics)
            else:
                post(connection, metrics)
    wall = time.perf_counter_ns() - started
    server.terminate()
    server.join()
    tell("blocked", posting.ns, wall)


if __name__ == "__main__":
    main()
