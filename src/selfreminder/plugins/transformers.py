"""A reminder inside the Trainer of Hugging Face transformers. Needs the extra `transformers`.

The callback adds the penalty's gradient in `on_pre_optimizer_step`: once for each optimiser step, however many batches
it accumulates, to unscaled gradients and after `max_grad_norm` has clipped those of the new data.
"""

from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from selfreminder._base.errors import MissingExtraError, SelfReminderError
from selfreminder.plugins import RemembersAtEnd, load_unless_empty
from selfreminder.reminder import Reminder
from selfreminder.reminder.model_call import find_device

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
except ImportError:
    raise MissingExtraError("this callback needs transformers: pip install 'selfreminder[transformers]'") from None

FILE, DRAWS = "reminder.safetensors", "reminder_draws.safetensors"
"""in a checkpoint folder: the memory, and where the draws from it are"""


class ReminderCallback(RemembersAtEnd, TrainerCallback):
    """Hold on to what `reminder` remembers while `trainer.train` learns something new.

    `Trainer(callbacks=[ReminderCallback(reminder)])` is all. Old items go through `model(**inputs)` without labels, in
    the trainer's precision. Each checkpoint folder gets the reminder, and training that resumes goes on with it.
    `data` is a data set with the model's input columns, padded to one length, and its labels; the model that remembers
    some of it is that of `load_best_model_at_end`.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        kind = kwargs["optimizer"].accelerator_state.distributed_type.value
        if kind in ("DEEPSPEED", "FSDP", "MEGATRON_LM"):
            raise SelfReminderError(
                f"{kind} keeps gradients in shards, where a ReminderCallback cannot add to them: train by DDP"
            )
        if state.global_step > 0:
            self._load(_checkpoint(args, state))

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        optimizer = kwargs["optimizer"]  # Accelerate's, around yours
        scale = None
        if optimizer.scaler is not None:
            with suppress(RuntimeError):  # it has been done, for clipping
                optimizer.scaler.unscale_(optimizer.optimizer)
            scale = optimizer.scaler.scale(torch.ones((), device=find_device(kwargs["model"])))
        self.reminder.add_gradient(kwargs["model"], optimizer, loss_scale=scale)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if args.should_save and not state.is_hyper_param_search:
            folder = _checkpoint(args, state)
            save_file(self.reminder.state_dict()["draws"], folder / DRAWS)
            self.reminder.save(folder / FILE)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.data is not None and not state.is_hyper_param_search:
            model = kwargs["model"]
            self.remember(model, _used(self.data, model) if args.remove_unused_columns else self.data)

    def _load(self, folder: Path) -> None:
        if not (folder / FILE).is_file():
            raise SelfReminderError(
                f"training goes on from a checkpoint, but there is no {folder / FILE}: have the checkpoint in "
                "output_dir; if it was saved without this callback, write there what to go on with by reminder.save"
            )
        state = Reminder.load(folder / FILE).state_dict()
        # Cloned, because the file is mapped, and the Trainer deletes old checkpoints.
        state["columns"] = {name: column.clone() for name, column in state["columns"].items()}
        state["draws"] = load_file(folder / DRAWS) if (folder / DRAWS).is_file() else {}
        load_unless_empty(self.reminder, state)


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir), f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")


def _used(data: Any, model: Any) -> Any:
    """A data set without the columns that the model does not take, as the Trainer itself uses it."""
    inside = model.get_base_model() if hasattr(model, "get_base_model") else model
    taken = {*signature(type(inside).forward).parameters, "label", "labels"}
    unused = [column for column in getattr(data, "column_names", None) or () if column not in taken]
    return data.remove_columns(unused) if unused else data
