"""Programs that wait for each other, in Triton's interpreter, which runs one program after another.

Here they take turns: each runs in a thread of its own until it waits for its team. When all wait, they go on
in another order, so that a result that another program has not stored yet is not there.
"""

import functools
import inspect
import random
import threading

from ordered_memory.backends.triton import kernels_backward, kernels_forward


class Program:
    """A program that runs only in its turn."""

    current = None

    def __init__(self, function, arguments):
        self.turn, self.pause = threading.Semaphore(0), threading.Semaphore(0)
        self.meetings, self.ended, self.error = 0, False, None
        self.thread = threading.Thread(target=self._run, args=(function, arguments), daemon=True)
        self.thread.start()

    def _run(self, function, arguments):
        self.turn.acquire()
        try:
            function(**arguments)
        except Exception as error:
            self.error = error
        self.ended = True
        self.pause.release()

    def go_on(self):
        Program.current = self
        self.turn.release()
        self.pause.acquire()
        if self.error is not None:
            raise self.error

    def wait(self):
        self.meetings += 1
        self.pause.release()
        self.turn.acquire()
        return self.meetings


class Turns:
    """In place of a kernel's function, which the interpreter calls for each program."""

    def __init__(self, function, team):
        from triton.runtime.interpreter import interpreter_builder

        functools.update_wrapper(self, function)
        self.__signature__, self.__globals__ = inspect.signature(function), function.__globals__
        self.function, self.team, self.grid = function, team, interpreter_builder
        self.programs = []

    def __call__(self, **arguments):
        program = Program(self.function, arguments)
        self.programs.append(program)
        program.go_on()  # to where it first waits: it has asked for its number by then
        if len(self.programs) == self.grid.grid_dim[0]:
            for first in range(0, len(self.programs), self.team):
                self.finish(self.programs[first : first + self.team])

    def finish(self, team):
        order = random.Random(len(self.programs))
        while not all(program.ended for program in team):
            assert not any(program.ended for program in team), "a program waits for one that has ended"
            order.shuffle(team)
            for program in team:
                program.go_on()
        assert len({program.meetings for program in team}) == 1


def let_programs_take_turns(monkeypatch, team):
    """Run the kernels of Ordered Memory with teams of `team` programs, in turns."""
    for module, name in ((kernels_forward, "forward_kernel"), (kernels_backward, "backward_kernel")):
        kernel = getattr(module, name)
        rewrite = kernel.rewrite
        monkeypatch.setattr(kernel, "rewrite", lambda rewrite=rewrite: Turns(rewrite(), team))
        monkeypatch.setattr(module, "_wait_for_team", lambda arrivals, *_: Program.current.wait())
