"""Log records and metrics being written: logging, TensorBoard, Weights & Biases, MLflow, when they are imported."""

from __future__ import annotations

import importlib
import logging
from typing import Any, ClassVar

from trainperf.hooks.base import PatchHook
from trainperf.hooks.context import Context

_SUMMARY_WRITER = (
    "add_scalar", "add_scalars", "add_tensor", "add_histogram", "add_histogram_raw", "add_image", "add_images",
    "add_image_with_boxes", "add_figure", "add_video", "add_audio", "add_text", "add_onnx_graph", "add_graph",
    "add_embedding", "add_pr_curve", "add_pr_curve_raw", "add_mesh", "add_hparams", "flush",
)  # fmt: skip
_MLFLOW = (
    "log_metric", "log_metrics", "log_param", "log_params", "log_artifact", "log_artifacts", "log_figure", "log_image",
    "log_dict", "log_text",
)  # fmt: skip


class LoggerHook(PatchHook):
    """Some functions of one module, or of a class in it, each a LOGGING bracket."""

    name: ClassVar[str] = "logging"
    needs: ClassVar[str] = ""
    owner: ClassVar[str] = "logging:Logger"
    functions: ClassVar[tuple[str, ...]] = ("_log", "handle")  # what makes a record and has it handled; or only that

    def install(self, context: Context) -> None:
        module_name, _, class_name = self.owner.partition(":")
        module = logging if module_name == "logging" else importlib.import_module(module_name)
        owner: Any = getattr(module, class_name) if class_name else module
        for function in self.functions:
            if callable(getattr(owner, function, None)):
                self.patch(
                    owner, function, lambda original: context.apart.logged(original, self.switch, context.native)
                )


class TensorBoardHook(LoggerHook):
    name = "tensorboard"
    needs = "torch.utils.tensorboard.writer"
    owner = "torch.utils.tensorboard.writer:SummaryWriter"
    functions = _SUMMARY_WRITER


class TensorBoardXHook(LoggerHook):
    name = "tensorboardX"
    needs = "tensorboardX.writer"
    owner = "tensorboardX.writer:SummaryWriter"
    functions = _SUMMARY_WRITER


class WandbHook(LoggerHook):
    name = "wandb"
    needs = "wandb.sdk.wandb_run"
    owner = "wandb.sdk.wandb_run:Run"
    functions = ("log", "save", "log_artifact")


class MlflowHook(LoggerHook):
    name = "mlflow"
    needs = "mlflow"
    owner = "mlflow"
    functions = _MLFLOW
