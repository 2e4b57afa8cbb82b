"""A papermill engine without a kernel: ``papermill --engine warm`` runs the cells in a forked process."""

from typing import Any

from buildcompare.config.errors import ExecutionError
from buildcompare.report import warm

NAME = "warm"


class WarmEngine:
    """Runs cells in a child of the fork server, or where this process is one, here.

    Not derived from papermill's engine: importing papermill loads this module, so it cannot import papermill first.
    """

    @classmethod
    def execute_notebook(cls, *given: Any, **options: Any) -> Any:
        """Run the notebook as every engine of papermill does."""
        from papermill.engines import Engine

        return Engine.execute_notebook.__func__(cls, *given, **options)

    @staticmethod
    def nb_kernel_name(nb: Any, name: str | None = None) -> str:
        """The kernel that the notebook names; it is not started."""
        return str(name or nb.metadata.kernelspec.name)

    @staticmethod
    def nb_language(nb: Any, language: str | None = None) -> str:
        """The language of the notebook, which papermill writes its parameters in."""
        return language or "python"

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **_: object) -> None:
        """Run the notebook, as papermill asks its engines to."""
        from buildcompare.report.shell import LANGUAGE, CellRun, run_cells

        cells, now = nb_man.nb.cells, ""
        nb_man.nb.metadata["language_info"] = LANGUAGE

        def hear(run: CellRun) -> None:
            nonlocal now
            cell, now = cells[run.index], f"cell {run.count}"
            if run.outputs is None:
                nb_man.cell_start(cell, run.index)
                return
            cell.outputs, cell.execution_count = run.outputs, run.count
            if run.failed:
                nb_man.cell_exception(cell, cell_index=run.index)
            nb_man.cell_complete(cell, cell_index=run.index)

        if warm.is_child():
            for run in run_cells(cells):
                hear(run)
                warm.tell(run.count)
            return
        try:
            warm.in_child(_told, cells, hear=hear)
        except ExecutionError as error:
            raise ExecutionError(f"{now}: {error}" if now else str(error)) from None


def _told(cells: Any) -> None:
    from buildcompare.report.shell import run_cells

    for run in run_cells(cells):
        warm.tell(run)
