"""Signals in the middle of training."""

import os


def interrupt_before(patch, objective, steps, *signals):
    """Send signals to this process before some training steps.

    Args:
        patch: a pytest.MonkeyPatch.
        objective: class whose `shard` begins each step.
        steps: the steps, counted from 1 over all training while the patch is in place.
        *signals: what is sent, in this order.
    Returns:
        The list to which the number of each step that begins is appended.
    """
    shard, begun = objective.shard, []

    def interrupting(self, *arguments):
        begun.append(len(begun) + 1)
        if begun[-1] in steps:
            for number in signals:
                os.kill(os.getpid(), number)
        return shard(self, *arguments)

    patch.setattr(objective, "shard", interrupting)
    return begun
