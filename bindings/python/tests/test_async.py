"""Answers in an asyncio loop: no thread waits, and a cancelled task cancels its run."""

import asyncio
import threading
import unittest

import dsa_sdk as dsa
from support import ENDLESS, FRANCE, model


class Async(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        asyncio.get_running_loop().slow_callback_duration = 5  # blocking calls are a part of these tests

    async def ask(self, question: str, **options) -> str:
        with model().session() as chat:
            async with chat.run(question, **options) as run:
                return "".join([text async for text in run.text()])

    async def test_text(self):
        self.assertIn("Paris", await self.ask(FRANCE))

    async def test_many_at_once_without_a_thread_each(self):
        before = threading.active_count()
        counts = []

        async def count():
            while True:
                counts.append(threading.active_count())
                await asyncio.sleep(0.01)

        counter = asyncio.create_task(count())
        answers = await asyncio.gather(*(self.ask(FRANCE, sampling="greedy") for _ in range(12)))
        counter.cancel()
        self.assertEqual(len(set(answers)), 1)
        self.assertLessEqual(max(counts), before)

    async def test_the_loop_goes_on_meanwhile(self):
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticker = asyncio.create_task(tick())
        await self.ask(FRANCE)
        ticker.cancel()
        self.assertGreater(ticks, 3)

    async def test_a_cancelled_task_cancels_its_run(self):
        with model().session() as chat:
            runs = []

            async def read():
                async with chat.run("Story.", sampling=ENDLESS) as run:
                    runs.append(run)
                    async for _ in run:
                        pass

            task = asyncio.create_task(read())
            await asyncio.sleep(0.2)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(runs[0].result.finish, dsa.Finish.CANCELLED)
            self.assertIn("Paris", chat.ask(FRANCE))  # the session is free

    async def test_a_timeout(self):
        with model().session() as chat:
            run = chat.run("Story.", sampling=ENDLESS)
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(0.1), run:
                    await run
            self.assertEqual(run.result.finish, dsa.Finish.CANCELLED)

    async def test_waiting_for_the_end(self):
        with model().session() as chat:
            run = chat.run(FRANCE)
            result = await run
            self.assertEqual(result.finish, dsa.Finish.STOP)
            self.assertIn("Paris", run.answer)

    async def test_failures_are_raised(self):
        with model().session() as chat:
            async with chat.run("Story.", sampling=ENDLESS) as run:
                with self.assertRaises(dsa.Cancelled):
                    async for event in run:
                        if isinstance(event, dsa.Text):
                            run.cancel(rollback=True)

    async def test_leaving_early(self):
        with model().session() as chat:
            async with chat.run("Story.", sampling=ENDLESS) as run:
                async for text in run.text():
                    break
            self.assertEqual(run.result.finish, dsa.Finish.CANCELLED)
            self.assertIn("Paris", await self.ask(FRANCE))

    async def test_a_run_from_another_thread_is_waited_for_by_a_worker(self):
        with model().session() as chat:
            run = await asyncio.to_thread(chat.run, FRANCE)
            self.assertIn("Paris", "".join([text async for text in run.text()]))
            run = await asyncio.to_thread(chat.run, "Story.", sampling=ENDLESS)
            task = asyncio.create_task(run._wait_async())
            await asyncio.sleep(0.1)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(run.result.finish, dsa.Finish.CANCELLED)

    async def test_runs_leave_nothing_behind(self):
        from dsa_sdk import _wake

        await self.ask(FRANCE)
        with model().session() as chat, self.assertRaises(dsa.ContextFull):
            chat.run("word " * 50000)
        runs = [caller for caller in _wake.callers if isinstance(caller, dsa.Run)]
        self.assertEqual((dict(_wake._wakers), runs), ({}, []))


if __name__ == "__main__":
    unittest.main()
