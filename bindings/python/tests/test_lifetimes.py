"""Any order of release, any moment of collection, and an interpreter that ends while an answer is being written."""

import gc
import itertools
import os
import random
import signal
import subprocess
import time
import unittest
import weakref

import dsa_sdk as dsa
from support import ENDLESS, FRANCE, MODEL, command, model, python, runtime, script_environment


class Plans(unittest.TestCase):
    def test_a_model_is_loaded_as_planned(self):
        with runtime().open(MODEL) as package:
            plan = package.plan(context_tokens=512, sessions=2)
            self.assertTrue(plan.summary.feasible)
            self.assertEqual((plan.summary.context_tokens, plan.summary.sessions), (512, 2))
            described = plan.explain()
            self.assertEqual(described["plan"]["host_bytes"], plan.summary.host_bytes)
            self.assertNotIn("cpu", [lack["backend"] for lack in described["missing_operators"]])
            with package.load(plan) as planned, planned.session() as chat:
                self.assertEqual(chat.info.max_tokens, 512)
            plan.close()
            self.assertRaises(dsa.Closed, plan.explain)

    def test_one_that_does_not_fit_says_what_would_help(self):
        with runtime().open(MODEL) as package, package.plan(host_bytes=4096) as plan:
            self.assertFalse(plan.summary.feasible)
            self.assertTrue(plan.explain()["plan"]["advice"])
            with self.assertRaises(dsa.MemoryShort) as caught:
                package.load(plan)
            self.assertEqual(caught.exception.available, 4096)
            self.assertRaises(dsa.ArgumentError, package.plan, context_tokens=-1)
            self.assertRaises(dsa.LimitExceeded, package.plan, context_tokens=1 << 30)

    def test_a_plan_says_how_the_cache_is_kept(self):
        with runtime().open(MODEL) as package:
            kept = {}
            for kv_format in (dsa.KvFormat.MODEL, dsa.KvFormat.BF16, dsa.KvFormat.FP8):
                with package.plan(device="cpu", context_tokens=512, kv_format=kv_format) as plan:
                    kept[kv_format] = plan.explain()["state"]["kv_bytes_per_token"]
            self.assertEqual(2 * kept[dsa.KvFormat.BF16], kept[dsa.KvFormat.MODEL])
            self.assertLess(kept[dsa.KvFormat.FP8], kept[dsa.KvFormat.BF16])

    def test_the_device_that_is_named_is_taken_or_refused(self):
        with runtime().open(MODEL) as package:
            with package.plan(device="cpu:0", context_tokens=512) as plan:
                self.assertEqual(plan.explain()["plan"]["device"], "cpu:0")
                self.assertEqual(plan.summary.device_bytes, 0)
            with self.assertRaises(dsa.DeviceFault) as caught:
                package.plan(device="abacus:0")
            self.assertEqual(caught.exception.code, dsa.Status.NO_DEVICE)
            self.assertIn("abacus:0", str(caught.exception))


class Release(unittest.TestCase):
    NAMES = ("runtime", "package", "model", "session", "prompt", "run")

    def make(self) -> dict:
        owner = dsa.Runtime(max_threads=1)
        package = owner.open(MODEL)
        loaded = package.load()
        chat = loaded.session()
        prompt = dsa.Prompt(owner).user(FRANCE)
        run = chat.run(prompt, sampling=ENDLESS, max_tokens=40)
        return dict(zip(self.NAMES, (owner, package, loaded, chat, prompt, run)))

    def handles(self, objects: dict) -> list[weakref.ref]:
        return [weakref.ref(each._handle) for each in objects.values()]

    def test_every_order_of_dropping(self):
        chain = [name for name in self.NAMES if name != "prompt"]  # a prompt holds the runtime and nothing holds it
        for index, names in enumerate(itertools.permutations(chain)):
            order = list(names)
            order.insert(index % len(self.NAMES), "prompt")
            objects = self.make()
            handles = self.handles(objects)
            for name in order:
                del objects[name]
            self.assertEqual([h() for h in handles], [None] * 6, order)  # no cycle keeps a handle

    def test_every_order_of_closing(self):
        orders = list(itertools.permutations(self.NAMES))
        for order in random.Random(1).sample(orders, 60):
            objects = self.make()
            for name in order:
                objects[name].close()
            self.assertTrue(all(each.closed for each in objects.values()), order)

    def test_children_work_after_their_parents(self):
        objects = self.make()
        run = objects.pop("run")
        objects.clear()
        gc.collect()
        self.assertEqual(run.wait().finish, dsa.Finish.LENGTH)
        self.assertGreater(len(run.answer), 0)

    def test_collection_at_random_points(self):
        draw = random.Random(2)
        kept = []
        before = gc.get_threshold()
        gc.set_threshold(7)  # nearly every allocation collects
        try:
            for _ in range(30):
                objects = self.make()
                cycle = [objects.pop(name) for name in draw.sample(self.NAMES, 3)]
                cycle.append(cycle)  # only the collector can free these
                for event in objects.get("run", ()):
                    if draw.random() < 0.2:
                        break
                kept.append(objects)
                if len(kept) > 4:
                    kept.pop(draw.randrange(len(kept)))
        finally:
            gc.set_threshold(*before)
        kept.clear()
        gc.collect()
        self.assertEqual(model().stats.state, dsa.ModelState.READY)

    def test_use_after_close(self):
        objects = self.make()
        for each in objects.values():
            each.close()
            each.close()  # twice is fine
        with self.assertRaises(dsa.Closed):
            objects["session"].ask("Hello.")
        with self.assertRaises(dsa.Closed):
            objects["model"].session()
        with self.assertRaises(dsa.Closed):
            objects["prompt"].text("more")
        with self.assertRaises(dsa.Closed):
            objects["runtime"].open(MODEL)
        objects["run"].cancel()  # as after its end: nothing to do
        self.assertIsNotNone(objects["run"].result)

    def test_closing_a_model_ends_what_runs_on_it(self):
        loaded = dsa.Runtime().load(MODEL)
        chat = loaded.session()
        run = chat.run("Tell me a story.", sampling=ENDLESS)
        self.assertTrue(loaded.close())
        with self.assertRaisesRegex(dsa.Closed, "the model was closed"):
            run.wait()
        self.assertEqual(run.result.finish, dsa.Finish.CANCELLED)
        with self.assertRaises(dsa.Closed):
            chat.ask("Hello.")


class Callbacks(unittest.TestCase):
    def test_an_exception_while_loading(self):
        class Odd(Exception):
            pass

        def fail(progress):
            raise Odd("from the callback")

        with self.assertRaisesRegex(Odd, "from the callback"):
            runtime().load(MODEL, on_progress=fail)
        with self.assertRaises(dsa.Cancelled):
            runtime().load(MODEL, on_progress=lambda progress: False)
        runtime().load(MODEL, on_progress=lambda progress: None).close()

    def test_an_exception_while_prefilling_changes_nothing(self):
        with model().session() as chat:
            with self.assertRaises(ZeroDivisionError):
                chat.prefill(FRANCE, on_progress=lambda progress: 1 // 0)
            self.assertEqual(chat.info.num_tokens, 0)
            self.assertGreater(chat.prefill(FRANCE), 0)

    def test_an_exception_for_an_event_takes_the_run_back(self):
        with model().session() as chat:
            chat.ask("Hello.", max_tokens=3)
            before, calls = chat.info.num_tokens, []

            def fail(event):
                calls.append(event)
                if isinstance(event, dsa.Text):
                    raise KeyError("once")

            with self.assertRaisesRegex(KeyError, "once"):
                chat.ask("Tell me a story.", on_event=fail, sampling=ENDLESS)
            self.assertEqual(chat.info.num_tokens, before)
            self.assertEqual(sum(isinstance(event, dsa.Text) for event in calls), 1)
            self.assertIn("Paris", chat.ask(FRANCE))

    def test_temporary_callbacks_survive_collection(self):
        before = gc.get_threshold()
        gc.set_threshold(1)
        try:
            done = []
            runtime().load(MODEL, on_progress=lambda progress: done.append(gc.collect()))
            self.assertGreater(len(done), 1)
        finally:
            gc.set_threshold(*before)


class Exit(unittest.TestCase):
    """BIND-06: the exit code of the script, and not a word."""

    LIVE = """
        chat = dsa.Runtime().load(MODEL).session()
        run = chat.run("Tell me a story.", sampling=dsa.Sampling(temperature=0, bias={4: float("-inf")}))
        run.poll(1.0)
    """

    def ends(self, script: str, code: int = 0, out: str = "") -> None:
        done = python(script)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (code, out, ""))

    def test_with_a_live_run(self):
        self.ends(self.LIVE + "\n        raise SystemExit(3)", code=3)

    def test_in_the_middle_of_an_iteration(self):
        self.ends(self.LIVE + "\n        events = iter(run); next(events); print('bye')", out="bye\n")

    def test_with_a_live_run_in_a_loop_that_wakes(self):
        self.ends(
            """
            import asyncio
            kept = []
            async def main():
                chat = dsa.Runtime().load(MODEL).session()
                run = chat.run("Tell me a story.", sampling=dsa.Sampling(temperature=0, bias={4: float("-inf")}))
                kept.append(run)
                async for text in run.text():
                    break
            asyncio.run(main())
            """
        )
        self.ends(
            """
            import asyncio
            chat = dsa.Runtime().load(MODEL).session()
            async def main():
                run = chat.run("Tell me a story.", sampling=dsa.Sampling(temperature=0, bias={4: float("-inf")}))
                run.poll()
                return run
            run = asyncio.run(main())
            run.poll(0.2)
            """
        )

    def test_while_a_daemon_thread_reads(self):
        self.ends(
            """
            import threading, time
            def read():
                chat = dsa.Runtime().load(MODEL).session()
                for event in chat.run("Story.", sampling=dsa.Sampling(temperature=0, bias={4: float("-inf")})):
                    pass
            threading.Thread(target=read, daemon=True).start()
            time.sleep(0.5)
            """
        )

    def test_with_the_log_on(self):
        self.ends(
            """
            import logging
            logging.getLogger("dsa_sdk").setLevel(logging.DEBUG)
            """
            + self.LIVE.replace("\n        ", "\n            ")
        )

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_a_forked_child_is_told(self):
        self.ends(
            """
            import os, warnings
            chat = dsa.Runtime().load(MODEL).session()
            warnings.simplefilter("ignore")  # newer interpreters warn of what is tested here
            child = os.fork()
            if child == 0:
                try:
                    chat.ask("Hello.")
                except dsa.Forked:
                    os._exit(7)
                os._exit(1)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            """,
            out="7\n",
        )

    def test_a_spawned_process_works(self):
        self.ends("print('Paris' in dsa.Runtime().load(MODEL).session().ask('What is the capital of France?'))", out="True\n")


class Interrupt(unittest.TestCase):
    """Ctrl-C is answered within 200 ms."""

    def seconds(self, script: str) -> tuple[float, str]:
        child = subprocess.Popen(
            command(script), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=script_environment()
        )
        self.assertEqual(child.stdout.readline(), "ready\n")
        time.sleep(0.3)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        out = child.stdout.readline()  # printed by the handler of KeyboardInterrupt
        took = time.monotonic() - began
        rest, errors = child.communicate(timeout=30)
        self.assertEqual((child.returncode, rest, errors), (0, "", ""))
        return took, out

    def test_while_reading(self):
        took, out = self.seconds(
            """
            chat = dsa.Runtime().load(MODEL).session()
            run = chat.run("Story.", sampling=dsa.Sampling(temperature=0, bias={4: float("-inf")}))
            print("ready", flush=True)
            try:
                for event in run:
                    pass
            except KeyboardInterrupt:
                print(run.result.finish.name, flush=True)
            """
        )
        self.assertEqual(out, "CANCELLED\n")
        self.assertLess(took, 0.2)

    def test_while_nothing_comes(self):
        took, out = self.seconds(
            """
            model = dsa.Runtime().load(MODEL)
            endless = dsa.Sampling(temperature=0, bias={4: float("-inf")})
            first = model.session().run("Story.", sampling=endless)
            second = model.session().run("Story.", sampling=endless, priority="background")  # waits for the first
            print("ready", flush=True)
            try:
                for event in second:
                    pass
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            """
        )
        self.assertEqual(out, "interrupted\n")
        self.assertLess(took, 0.2)

    def test_while_prefilling(self):
        took, out = self.seconds(
            """
            chat = dsa.Runtime(max_threads=1).load(MODEL).session()
            print("ready", flush=True)
            try:
                chat.prefill("word " * 20000)
            except KeyboardInterrupt:
                print(chat.info.num_tokens, flush=True)
            """
        )
        self.assertEqual(out, "0\n")
        self.assertLess(took, 0.5)  # after the chunk in progress


if __name__ == "__main__":
    unittest.main()
