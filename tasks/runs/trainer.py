"""The training loop of all tasks, on Lightning Fabric; a resumed run has the results of an uninterrupted one.

A task provides a model, the batches of each epoch and a loss per example. The best epoch is selected on
validation data only.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import asdict
from typing import Any, NoReturn

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from tasks.runs.buffers import buffer_digests, check_buffers
from tasks.runs.checkpoints import (
    check_weights,
    read_checkpoint,
    read_state,
    rng_state,
    save_state,
    save_tensors,
    set_rng_state,
)
from tasks.runs.config import COMPUTE_OPTIONS, LIMITS, TrainingConfig
from tasks.runs.errors import Diverged, UserError
from tasks.runs.fabric import all_reduce, gather
from tasks.runs.files import write_json
from tasks.runs.interfaces import Experiment, Scores
from tasks.runs.machine import deterministic_operations, to_device
from tasks.runs.options import flag, option_text
from tasks.runs.progress import Progress, epoch_text, progress_bar, remaining_text
from tasks.runs.record import record_start
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import config_from_dict, config_to_dict
from tasks.runs.stop_signals import StopSignals
from tasks.runs.tensorboard import TensorBoardLogger, tensorboard_writer
from tasks.runs.validation import validate


class Trainer:
    """Trains a model on a task for `epochs` or `max_minutes`.

    Args:
        config: configuration of the run; it is saved in config.json and best.safetensors.
        experiment: objective, model and optimization; the model is moved to the device of `fabric`.
        fabric: already launched.
        run: the run directory, locked.
    """

    def __init__(
        self, config: TrainingConfig, experiment: Experiment, fabric: Fabric, run: RunDirectory
    ) -> None:
        self.config, self.objective, self.fabric, self.run = config, experiment.objective, fabric, run
        self.metadata = config_to_dict(config) | experiment.metadata
        self.unwrapped_model, self.optimization = experiment.model, experiment.optimization
        self.model, self.optimizer = fabric.setup(self.unwrapped_model, self.optimization.optimizer)
        self.progress = Progress()
        self.saved_step: int | None = None
        self.device: torch.device = fabric.device
        self.fingerprint = self.objective.fingerprint()
        self.digests = {  # of metadata that are not options, such as the vocabulary
            name: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
            for name, value in experiment.metadata.items()
            if name not in vars(config)
        }
        self.initial_buffers = buffer_digests(self.unwrapped_model)

    def restore(self) -> None:
        """Restore the last checkpoint; if there is none, only seed PyTorch's generator.

        Raises:
            UserError: the checkpoint does not fit the model, the data or the options, or is missing in the
                directory of a trained model.
        """
        # Each rank draws its own dropout masks; rank 0 uses the seed itself.
        torch.manual_seed(self.config.seed + 1_000_003 * self.fabric.global_rank)
        if not self.run.last.exists():
            self.run.check_resumable()
            if self.fabric.is_global_zero:
                self.run.commit_best(step=0)
            return
        checkpoint = read_state(self.run.last)
        try:
            self._check_data(checkpoint)  # first, as the data may decide the sizes of the model
            check_weights(self.run.last, checkpoint["model"], self.unwrapped_model)
            check_buffers(
                self.run.path, self.unwrapped_model, checkpoint["model"], checkpoint.get("buffers", {})
            )
            self._load(checkpoint)
        except UserError:
            raise
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(f"{self.run.last}: not a checkpoint of this run ({error})") from None
        self.saved_step = self.progress.step
        if self.fabric.is_global_zero:
            self.run.commit_best(self.progress.best_step)
            self.run.check_best(self.progress.best_epoch)
            self.run.write_metrics(self.progress.history)

    def _check_data(self, checkpoint: dict[str, Any]) -> None:
        """Raise a UserError if the training or validation data are not those of the saved run."""
        if checkpoint["data"] != self.fingerprint:
            raise UserError(
                f"{self.run.path}: this run was started with other training or validation data: a data "
                "option, --seed or a file has changed; use another --run-dir"
            )

    def _load(self, checkpoint: dict[str, Any]) -> None:
        self.unwrapped_model.load_state_dict(checkpoint["model"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.optimization.load_state_dict(checkpoint["optimization"])
        if checkpoint["precision"]:  # the loss scale of float16 training
            self.fabric.strategy.precision.load_state_dict(checkpoint["precision"])
        self.progress = config_from_dict(Progress, checkpoint["progress"], self.run.last)
        in_epoch = self.progress.step_in_epoch and not self.progress.nothing_left(self.config)
        for name, value in self._batch_options().items():
            saved = checkpoint["batches"].get(name, value)
            if in_epoch and value != saved:
                current, before = option_text(value), option_text(saved)
                raise UserError(f"{flag(name)} {current}: must stay {before} until the end of the epoch")
        for name, saved in checkpoint["digests"].items():  # an older version may have saved fewer
            if self.digests.get(name, saved) != saved:
                raise UserError(
                    f"{self.run.path}: this run was started with another {name}: a file has changed, or the "
                    "option that names it; use another --run-dir"
                )
        rank, states = self.fabric.global_rank, checkpoint["random_states"]
        if not isinstance(states, Tensor):
            raise TypeError("random_states must be a tensor")
        if len(states) == self.fabric.world_size:
            # A run that was on another type of device has fewer or more states.
            if len(states[rank]) == len(rng_state(self.device)):
                set_rng_state(self.device, states[rank])
            objective_state = {
                name: value[rank].clone().to(self.device) for name, value in checkpoint["task"].items()
            }
            self.objective.load_state(objective_state)
        self.initial_buffers = checkpoint.get("buffers", self.initial_buffers)

    def fit(self) -> Progress:
        """Train to the end, starting from the state that `restore` left.

        Returns:
            The progress at the end; best.safetensors holds the weights of the best epoch.
        Raises:
            KeyboardInterrupt: stopped by Ctrl-C or SIGTERM; `saved_step` is the step of the checkpoint.
            Diverged: the loss or a weight is no longer finite.
        """
        self.progress.finished = self.progress.nothing_left(self.config)
        is_main = self.fabric.is_global_zero
        if is_main:
            self.run.diverged.unlink(missing_ok=True)
        if self.progress.finished:
            return self.progress
        if is_main:
            self.run.remove_results()
            record_start(self.run, self.device)
        directory = self.run.tensorboard if is_main else None
        with (
            deterministic_operations(self.device),
            StopSignals(announce=is_main) as signals,
            tensorboard_writer(directory, self.progress.step) as writer,
        ):
            logger = TensorBoardLogger(writer, self.objective, self.config.log_every)
            while not self.progress.finished:
                fraction, out_of_time = self._train_epoch(signals, logger)
                self._end_epoch(logger, fraction, out_of_time)
                interrupted, _ = self._stop_reasons(signals)  # during validation
                if interrupted:
                    raise KeyboardInterrupt
        return self.progress

    def update_best_metadata(self) -> None:
        """Save the options of this call with the best weights.

        In a resumed run they may differ from those saved earlier, for example in the number of slots in the
        test.
        """
        weights, saved = read_checkpoint(self.run.best)
        metadata = json.loads(json.dumps(self.metadata))
        changed = {name for name, value in metadata.items() if value != saved.get(name)}
        if changed - COMPUTE_OPTIONS - LIMITS:
            save_tensors(self.run.best, weights, metadata)

    def _train_epoch(self, signals: StopSignals, logger: TensorBoardLogger) -> tuple[float, bool]:
        """Train to the end of the current epoch, or of the time.

        Returns:
            The fraction of the epoch's steps that were taken, and whether `max_minutes` have passed.
        """
        progress, config = self.progress, self.config
        batches = self.objective.training_batches(progress.epoch, config.batch_size * self.fabric.world_size)
        self.model.train()
        sums = torch.tensor([progress.loss_sum, progress.correct], dtype=torch.float64, device=self.device)
        start_time, seconds_before = time.monotonic(), progress.seconds
        logger.begin_epoch(sums, progress.examples)
        _, out_of_time = self._stop_reasons(signals)  # the time may have been up when the run was stopped
        with progress_bar(
            total=len(batches), initial=progress.step_in_epoch, desc=f"epoch {progress.epoch}", unit="batch"
        ) as bar:
            while progress.step_in_epoch < len(batches) and not out_of_time:
                batch_sums, examples = self.train_batch(batches[progress.step_in_epoch])
                sums += batch_sums
                progress.step += 1
                progress.step_in_epoch += 1
                progress.examples += examples
                progress.seconds = seconds_before + time.monotonic() - start_time
                self._update_bar(bar, sums)
                logger.add_step(progress.step, sums, progress.examples, self._learning_rate())
                interrupted, out_of_time = self._stop_reasons(signals)
                if interrupted or (progress.step % config.save_every == 0 and not out_of_time):
                    progress.loss_sum, progress.correct = sums.tolist()
                    self._save()
                if interrupted:
                    raise KeyboardInterrupt
        progress.loss_sum, progress.correct = sums.tolist()
        return progress.step_in_epoch / len(batches), out_of_time

    def train_batch(self, batch: Any) -> tuple[Tensor, int]:
        """Take one training step.

        Args:
            batch: one of `Objective.training_batches`.
        Returns:
            The total loss and the number of correct predictions of the whole batch, (2,), and its size.
        """
        world_size = self.fabric.world_size
        shard = self.objective.shard(batch, self.fabric.global_rank, world_size)
        self.optimization.begin_step(shard)
        losses, correct, penalty = self.objective.losses(self.model, to_device(shard.batch, self.device))
        # DDP averages gradients over processes; with these factors, the result is the mean over the whole
        # batch.
        loss = losses.sum() * (shard.has_examples * world_size / shard.global_batch_size)
        if penalty is not None:
            loss = loss + penalty * (shard.has_examples * len(losses) * world_size / shard.global_batch_size)
        self.optimizer.zero_grad()
        self.fabric.backward(loss)
        # A check for non-finite values here would wait for the device at every step; _check_loss finds them.
        self.fabric.clip_gradients(
            self.model, self.optimizer, max_norm=self.config.gradient_clip, error_if_nonfinite=False
        )
        self.optimizer.step()
        self.optimization.end_step()
        sums = torch.stack([losses.detach().double().sum(), correct.double().sum()]) * shard.has_examples
        return all_reduce(self.fabric, sums), shard.global_batch_size

    def _end_epoch(self, logger: TensorBoardLogger, fraction: float, out_of_time: bool) -> None:
        """Validate, step the scheduler, save the weights if they are the best, log, save a checkpoint.

        If the time limit cut the epoch short, the scheduler is not stepped, and with a higher limit a resumed
        run takes the rest of the epoch's steps.
        """
        progress, config, objective = self.progress, self.config, self.objective
        self._check_loss()
        train = Scores(progress.loss_sum / progress.examples, progress.correct / progress.examples)
        evaluated = self.optimization.evaluated_model
        with self.fabric.autocast():
            validation = validate(
                objective, evaluated, objective.validation_batches(self.fabric.world_size), self.fabric
            )
        self._check_loss(validation.loss)
        selection_score = objective.selection_score(validation)
        row = {
            "epoch": progress.epoch,
            "step": progress.step,
            "fraction": fraction,
            **{f"train_{name}": value for name, value in objective.metrics(train).items()},
            **{f"validation_{name}": value for name, value in objective.metrics(validation).items()},
            "selection_score": selection_score,
            "learning_rate": self._learning_rate(),
            "seconds": round(progress.seconds, 1),
        }
        progress.history.append(row)
        is_whole = fraction == 1
        return_to_best = is_whole and self.optimization.end_epoch(validation.loss, selection_score)
        improved = row["best"] = progress.is_best(selection_score, validation.loss)
        if improved:
            progress.best, progress.best_loss = selection_score, validation.loss
            progress.best_epoch, progress.best_step = progress.epoch, progress.step
        progress.finished = progress.epoch >= config.epochs or out_of_time
        if is_whole:
            progress.epoch += 1
            progress.step_in_epoch = progress.examples = 0
            progress.loss_sum = progress.correct = 0.0
        # The checkpoint comes after all that it describes: a resumed run then repeats whatever a crash has
        # left incomplete. Only then do new weights replace the best ones: see `commit_best`.
        if self.fabric.is_global_zero:
            if improved:
                save_tensors(self.run.new_best(progress.best_step), evaluated.state_dict(), self.metadata)
            self.run.write_metrics(progress.history)
            logger.add_epoch(row)
            print(epoch_text(progress, config), flush=True)
        if return_to_best:
            self._return_to_best(evaluated, improved)
        self._save()
        if self.fabric.is_global_zero:
            self.run.commit_best(progress.best_step)

    def _return_to_best(self, evaluated: nn.Module, improved: bool) -> None:
        """Replace the weights, and their average if there is one, by those of the best epoch."""
        # Those of this epoch are not in best.safetensors yet.
        weights = evaluated.state_dict() if improved else read_checkpoint(self.run.best)[0]
        check_weights(self.run.best, weights, self.unwrapped_model)
        for model in (self.unwrapped_model, evaluated):
            model.load_state_dict(weights)
        if self.fabric.is_global_zero and not self.progress.finished:
            rate = f"learning rate {self._learning_rate():g}"
            print(f"{rate}, from the weights of epoch {self.progress.best_epoch}", flush=True)

    def _save(self) -> None:
        """Save the complete training state to last.safetensors. All processes call this at the same step."""
        parameters = self.unwrapped_model.parameters()
        finite = torch.stack([parameter.detach().isfinite().all() for parameter in parameters]).all()
        self._check_loss()
        if not finite:  # since the last step: its loss is that of the weights before it
            self._diverge("a weight")
        objective_state = {
            name: gather(self.fabric, tensor) for name, tensor in self.objective.state().items()
        }
        state = {
            "model": self.unwrapped_model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "optimization": self.optimization.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "progress": asdict(self.progress),
            "random_states": gather(self.fabric, rng_state(self.device)),
            "task": objective_state,
            "batches": self._batch_options(),
            "data": self.fingerprint,
            "digests": self.digests,
            "buffers": self.initial_buffers,
        }
        if self.fabric.is_global_zero:
            save_state(self.run.last, state)
        self.fabric.barrier()
        self.saved_step = self.progress.step

    def _batch_options(self) -> dict[str, Any]:
        """The options that must not change within an epoch, as JSON values."""
        options = config_to_dict(self.config)
        return {
            "devices": self.fabric.world_size,
            "seed": self.config.seed,
            **{name: options[name] for name in self.objective.batch_options},
        }

    def _learning_rate(self) -> float:
        rate: float = self.optimizer.param_groups[0]["lr"]
        return rate

    def _check_loss(self, loss: float = 0.0) -> None:
        """Raise Diverged if the loss is not finite, before bad weights overwrite good ones."""
        if not (math.isfinite(self.progress.loss_sum) and math.isfinite(loss)):
            self._diverge("the loss")

    def _diverge(self, what: str) -> NoReturn:
        if self.fabric.is_global_zero:
            write_json(self.run.diverged, {"epoch": self.progress.epoch, "step": self.progress.step})
        raise Diverged(
            f"{what} is not finite at step {self.progress.step}: start another run with a lower "
            "--learning-rate"
        )

    def _stop_reasons(self, signals: StopSignals) -> tuple[bool, bool]:
        """Whether a process was interrupted, and whether the main one, whose clock counts, is out of time."""
        own = signals.received, self.progress.out_of_time(self.config)
        if self.fabric.world_size == 1:
            return own
        interrupted, out_of_time = zip(*gather(self.fabric, torch.tensor(own)).tolist(), strict=True)
        return any(interrupted), out_of_time[0]

    def _update_bar(self, bar: Any, sums: Tensor) -> None:
        bar.update()
        if not bar.disable and self.progress.step % 10 == 0:
            so_far = Scores(*(sums / self.progress.examples).tolist())
            metric_texts = [f"{name} {value:.3f}" for name, value in self.objective.metrics(so_far).items()]
            bar.set_postfix_str(
                ", ".join([*metric_texts, remaining_text(self.progress, self.config)]), refresh=False
            )
