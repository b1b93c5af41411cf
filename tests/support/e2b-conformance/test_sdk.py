"""The official E2B SDK for Python, unmodified, against the server named by the environment:

    E2B_API_KEY=e2b_… E2B_API_URL=http://127.0.0.1:PORT E2B_SANDBOX_URL=http://127.0.0.1:PORT python -m unittest test_sdk

It asks for the same behaviour as sdk.test.mjs, which is the public service's.
"""

import datetime
import os
import re
import time
import unittest

from e2b import (
    AuthenticationException,
    CommandExitException,
    NotFoundException,
    Sandbox,
    SandboxNotFoundException,
    SandboxNotRunningException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)
from e2b.sandbox.filesystem.filesystem import WriteEntry

for name in ["E2B_API_URL", "E2B_SANDBOX_URL"]:
    assert re.match(r"http://(127\.0\.0\.1|localhost)(:|/|$)", os.environ[name]), f"{name} must be a loopback address"

METADATA = {"run": "python", "odd key": "a b&c"}


class Conformance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create("base", timeout=120, metadata=METADATA, envs={"FOO": "bar"})

    @classmethod
    def tearDownClass(cls):
        cls.sandbox.kill()

    def test_01_a_command_sees_the_environment_and_its_output_comes_back(self):
        result = self.sandbox.commands.run("echo hi; echo $FOO")
        self.assertEqual((result.stdout, result.exit_code), ("hi\nbar\n", 0))

    def test_02_a_failing_command_reports_its_exit_code_and_stderr(self):
        with self.assertRaises(CommandExitException) as failed:
            self.sandbox.commands.run("echo oops >&2; exit 3")
        self.assertEqual((failed.exception.exit_code, failed.exception.stderr), (3, "oops\n"))

    def test_03_output_streams_while_the_command_runs(self):
        at = []
        command = "for i in 1 2 3; do echo $i; sleep 0.3; done"
        self.sandbox.commands.run(command, on_stdout=lambda _: at.append(time.monotonic()))
        self.assertGreaterEqual(len(at), 3)
        self.assertGreaterEqual(at[-1] - at[0], 0.4, "the chunks came together")

    def test_04_stdin_reaches_a_background_command(self):
        handle = self.sandbox.commands.run("cat", background=True, stdin=True)
        self.sandbox.commands.send_stdin(handle.pid, "hello\n")
        self.sandbox.commands.close_stdin(handle.pid)
        self.assertEqual(handle.wait().stdout, "hello\n")

    def test_05_a_background_command_is_listed_and_can_be_killed(self):
        handle = self.sandbox.commands.run("sleep 100", background=True)
        self.assertIn(handle.pid, [process.pid for process in self.sandbox.commands.list()])
        self.assertTrue(handle.kill())
        with self.assertRaises(CommandExitException):
            handle.wait()
        self.assertFalse(self.sandbox.commands.kill(999_999))

    def test_06_a_command_survives_its_client_and_can_be_joined_again(self):
        handle = self.sandbox.commands.run("sleep 0.6; echo late", background=True)
        handle.disconnect()
        self.assertEqual(self.sandbox.commands.connect(handle.pid).wait().stdout, "late\n")

    def test_07_the_deadline_header_ends_the_command(self):
        with self.assertRaises(TimeoutException):
            self.sandbox.commands.run("sleep 5", timeout=0.5)
        deadline = time.monotonic() + 10
        while any("sleep 5" in process.args for process in self.sandbox.commands.list()):
            self.assertLess(time.monotonic(), deadline, "it was not killed")

    def test_08_files_are_written_read_listed_and_removed(self):
        files = self.sandbox.files
        files.write("a/b.txt", "content")
        self.assertEqual(files.read("a/b.txt"), "content")
        files.write_files([WriteEntry(path="x.txt", data="1"), WriteEntry(path="/home/user/y.txt", data="2")])
        names = [entry.name for entry in files.list("/home/user")]
        for name in ["a", "x.txt", "y.txt"]:
            self.assertIn(name, names)
        self.assertFalse(files.exists("nope"))
        self.assertEqual(files.get_info("/home/user/x.txt").size, 1)
        self.assertTrue(files.make_dir("/home/user/dd"))
        self.assertFalse(files.make_dir("/home/user/dd"))
        files.rename("/home/user/x.txt", "/home/user/dd/z.txt")
        self.assertEqual(files.read("dd/z.txt", format="bytes"), b"1")
        files.remove("/home/user/dd")
        with self.assertRaises(NotFoundException):
            files.read("zzz")

    def test_09_info_timeout_and_metrics(self):
        self.sandbox.set_timeout(60)
        info = self.sandbox.get_info()
        self.assertEqual(info.state, SandboxState.RUNNING)
        self.assertEqual(info.metadata, METADATA)
        left = (info.end_at - datetime.datetime.now(datetime.timezone.utc)).total_seconds()
        self.assertTrue(50 < left <= 61, f"the end is {left} s away")
        self.assertIsInstance(self.sandbox.get_metrics(), list)
        self.assertTrue(self.sandbox.is_running())

    def test_10_lists_filter_by_metadata_and_follow_every_page(self):
        query = SandboxQuery(metadata={"odd key": "a b&c", "run": "python"}, state=[SandboxState.RUNNING])
        filtered = Sandbox.list(query=query).next_items()
        self.assertEqual([sandbox.sandbox_id for sandbox in filtered], [self.sandbox.sandbox_id])
        extra = [Sandbox.create("base"), Sandbox.create("base")]
        seen, pages = set(), Sandbox.list(limit=1)
        while pages.has_next:
            seen.update(sandbox.sandbox_id for sandbox in pages.next_items())
        for sandbox in [self.sandbox, *extra]:
            self.assertIn(sandbox.sandbox_id, seen)
        for sandbox in extra:
            sandbox.kill()

    def test_11_pause_keeps_processes_and_files_and_connect_resumes_them(self):
        command = "for i in $(seq 1 200); do echo $i >> ticks; sleep 0.1; done"
        ticking = self.sandbox.commands.run(command, background=True)
        time.sleep(0.5)
        self.assertTrue(self.sandbox.pause())
        with self.assertRaises(Exception):
            ticking.wait()
        self.assertFalse(self.sandbox.pause(), "a second pause says so")
        self.assertEqual(self.sandbox.get_info().state, SandboxState.PAUSED)
        with self.assertRaises(SandboxNotRunningException):
            self.sandbox.commands.run("echo x")
        with self.assertRaises(SandboxNotFoundException):
            self.sandbox.set_timeout(1)
        time.sleep(0.7)
        resumed = Sandbox.connect(self.sandbox.sandbox_id, timeout=60)
        at_resume = len(resumed.files.read("ticks").split())
        self.assertLess(at_resume, 12, "it ran while paused")
        time.sleep(0.5)
        self.assertGreater(len(resumed.files.read("ticks").split()), at_resume, "it did not go on")
        joined = resumed.commands.connect(ticking.pid)
        joined.kill()
        with self.assertRaises(CommandExitException):
            joined.wait()

    def test_12_at_its_timeout_a_sandbox_is_killed_or_paused_where_asked(self):
        killed = Sandbox.create("base", timeout=1)
        paused = Sandbox.create("base", timeout=1, lifecycle={"on_timeout": "pause"})
        time.sleep(1.8)
        with self.assertRaises(SandboxNotFoundException):
            killed.get_info()
        self.assertEqual(paused.get_info().state, SandboxState.PAUSED)
        paused.connect(timeout=10)
        self.assertEqual(paused.commands.run("echo alive").stdout, "alive\n")
        paused.kill()

    def test_13_a_killed_sandbox_is_gone(self):
        gone = Sandbox.create("base")
        self.assertTrue(gone.kill())
        self.assertFalse(gone.kill())
        with self.assertRaises(SandboxNotFoundException):
            gone.get_info()
        with self.assertRaises(SandboxNotFoundException):
            Sandbox.connect(gone.sandbox_id)
        self.assertFalse(gone.is_running())
        with self.assertRaises(SandboxNotRunningException):
            gone.commands.run("echo x")

    def test_14_a_wrong_key_is_refused(self):
        with self.assertRaises(AuthenticationException):
            Sandbox.create("base", api_key="e2b_" + "f" * 40)


if __name__ == "__main__":
    unittest.main()
