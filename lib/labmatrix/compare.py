"""Compare all variants of a matrix: contrasts, effects of factors, ranks, and claims."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

import numpy as np

from buildcompare.config.assumed import assumed_metric, open_catalogue
from buildcompare.config.catalogue import Catalogue, Metric, read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.metrics.measurements import level_of
from buildcompare.recordings.files import read_input
from buildcompare.recordings.recording import FloatArray, Measurement
from buildcompare.results.codes import Better, NoiseSource, Status, Verdict
from buildcompare.stats.effects import Effect, holm, judge
from buildcompare.stats.planning import ALPHA, percent
from labmatrix import model, ranking
from labmatrix.model import Cell, CellMeans, Levels, Share
from labmatrix.params import Claim, VariantRun, Variants
from labmatrix.results import (
    ClaimResult,
    ClaimStatus,
    ContrastResult,
    EffectResult,
    OperationResult,
    RankResult,
    TermResult,
    Unjudged,
    VariantRunResult,
    VariantsResult,
    listed_levels,
)
from loadfiles import pgbench

SMALLEST = 1e-100  # smallest value, and inverse of the largest, so that all ratios are finite
MOST_CELLS = 200  # a matrix with more is a search, not a comparison


def catalogue_of(params: Variants) -> Catalogue:
    """Build the catalogue of the matrix: its operations, then the metrics of its catalogue."""
    if params.metrics is None:
        return open_catalogue([]).with_operations(params.operations)
    try:
        return read_catalogue(params.metrics).with_operations(params.operations, assumed_metric)
    except InputError as error:
        raise params.fault_at(("metrics",), error) from None


@dataclass(frozen=True)
class MeasuredRun:
    """One run of a cell."""

    cell: Cell
    measurements: Sequence[Measurement]
    block: str | None
    facts: Mapping[str, float | str]
    source: str | None = None

    def value(self, metric: Metric, *, plain: bool = False) -> float | None:
        """Level of a metric, None if not measured; `plain` takes the arithmetic mean for every unit."""
        values = self._values(metric)
        return None if values is None else level_of(values, "" if plain else metric.unit).value

    def has_zero(self, metric: Metric) -> bool:
        """Whether a value of a metric is 0, so that it has no geometric mean."""
        values = self._values(metric)
        return values is not None and bool((values <= 0).any())

    def _values(self, metric: Metric) -> FloatArray | None:
        return next((each.values for each in self.measurements if each.metric == metric.slug), None)


def read_runs(params: Variants, catalogue: Catalogue) -> list[MeasuredRun]:
    """Read all runs; each summary in a file of pgbench is a run."""
    runs: list[MeasuredRun] = []
    for i, run in enumerate(params.runs):
        fault_at = partial(_fault_of_run, params, i)
        for levels, measured, facts, source in of_run(run, params.factors, catalogue, fault_at):
            missing = [name for name in params.factors if name not in levels]
            if missing:
                expected = f"a level of {missing[0]!r} ({', '.join(params.factors[missing[0]])})"
                fault = InputError(file=source, key=None, expected=expected, found="none")
                raise params.fault_at(("runs", i), fault)
            cell = tuple(levels[name] for name in params.factors)
            runs.append(MeasuredRun(cell, measured, run.block, {**facts, **run.facts}, source))
    count = len({run.cell for run in runs})
    if count > MOST_CELLS:
        raise InputError(file=None, key="runs", expected=f"at most {MOST_CELLS} variants", found=str(count))
    if count < 2:
        raise InputError(file=None, key="runs", expected="runs of two variants or more", found="one")
    places = [list(params.factors).index(name) for name in params.treatments]
    base = tuple(params.baseline[name] for name in params.treatments)
    if all(tuple(run.cell[i] for i in places) != base for run in runs):
        fault = InputError(file=None, key=None, expected=f"a run of the baseline ({', '.join(base)})", found="none")
        raise params.fault_at(("baseline",), fault)
    return runs


_Read = tuple[dict[str, str], Sequence[Measurement], dict[str, float | str], str | None]


def _fault_of_run(params: Variants, i: int, within: tuple[str, ...], error: InputError) -> InputError:
    return params.fault_at(("runs", i, *within), error)


def of_run(
    run: VariantRun,
    factors: Mapping[str, Sequence[str]],
    catalogue: Catalogue,
    fault_at: Callable[[tuple[str, ...], InputError], InputError] = lambda _, error: error,
) -> Iterator[_Read]:
    """Yield levels, measurements, facts and place of each run in `run`; `fault_at` adds the key to an error."""
    if run.values is not None:
        arrays = {name: np.atleast_1d(np.asarray(values, dtype=np.float64)) for name, values in run.values.items()}
        for name, values in arrays.items():
            wrong = next((each for each in values if each and not SMALLEST <= each <= 1.0 / SMALLEST), None)
            if wrong is not None:
                fault = InputError(file=None, key=None, expected="numbers from 1e-100 to 1e100", found=f"{wrong:g}")
                raise fault_at(("values", name), fault)
        yield run.levels, [Measurement.of(name, values, catalogue) for name, values in arrays.items()], {}, None
        return
    try:
        summaries = pgbench.summaries(read_input(str(run.pgbench), expected=pgbench.EXPECTED))
    except InputError as error:
        raise fault_at(("pgbench",), error) from None
    for summary in summaries:
        stated = {name: str(value) for name, value in summary.settings.items() if name in factors}
        place = f"{run.pgbench}, line {summary.line}"
        for name, level in stated.items():
            if level not in factors[name] or run.levels.get(name, level) != level:
                expected = f"{name} {run.levels.get(name) or ' or '.join(factors[name])}"
                fault = InputError(file=place, key=None, expected=expected, found=level)
                raise fault_at(("pgbench",), fault)
        yield {**stated, **run.levels}, pgbench.measured(summary, catalogue), dict(summary.settings), place


def compare_cells(params: Variants, runs: Sequence[MeasuredRun], catalogue: Catalogue) -> VariantsResult:
    """Analyse a matrix, operation by operation; p-values are adjusted over all operations."""
    cells = sorted({run.cell for run in runs}, key=lambda cell: _place(params, cell))
    names = _names(params, cells)
    measured = {each.metric for run in runs for each in run.measurements}
    metrics = [m for m in catalogue.metrics if m.slug in measured and m.better != Better.NEUTRAL]
    zeros = {metric.slug for metric in metrics if any(run.has_zero(metric) for run in runs)}
    operations, claims = list[OperationResult](), list[ClaimResult]()
    terms, effects, ranks = list[TermResult](), list[EffectResult](), list[RankResult]()
    contrasts: list[tuple[ContrastResult, Effect | None, Metric]] = []
    for metric in metrics:
        values = [(run, run.value(metric, plain=metric.slug in zeros)) for run in runs]
        rows = [(run.cell, value, run.block or "") for run, value in values if value is not None]
        if not metric.gate and len({cell for cell, *_ in rows}) < 2:
            continue
        sd_percent = metric.run_sd_percent.benchmark
        levels = model.levels_of(rows, run_sd=None if sd_percent is None else math.log1p(sd_percent / 100.0))
        of_metric = _contrasts(params, metric, levels, names) if metric.gate else []
        operations.append(_operation(metric, levels, names, judged=any(effect for _, effect, _ in of_metric)))
        if not metric.gate:
            continue
        contrasts += of_metric
        if levels.means is not None:
            of_terms, of_effects = _effects(params, metric, levels.means)
            terms, effects = [*terms, *of_terms], [*effects, *of_effects]
        ranks += _ranks(params, metric, levels, names)
        claims += [_claim(params, i, each, metric, levels, names) for i, each in _claims_of(params, metric, catalogue)]
    return VariantsResult(
        factors=params.factors,
        baseline=params.baseline,
        workload=params.workload,
        variants={names[cell]: dict(zip(params.factors, cell, strict=True)) for cell in cells},
        operations=operations,
        runs=[_run(run, names, params, metrics, zeros) for run in runs],
        contrasts=_adjusted(contrasts),
        terms=_proven(terms),
        effects=effects,
        ranking=ranks,
        claims=claims,
    )


def verdict_of(result: VariantsResult) -> Verdict:
    """Regression if a variant is worse than the baseline; pass if all others are decided; else inconclusive."""
    statuses = {row.status for row in result.beside_baseline}
    if Status.REGRESSION in statuses:
        return Verdict.REGRESSION
    open_ = not statuses or Status.INCONCLUSIVE in statuses or result.uncompared
    return Verdict.INCONCLUSIVE if open_ else Verdict.PASS


def _place(params: Variants, cell: Cell) -> tuple[object, ...]:
    """Sort key of reports: workload, then the baseline first."""
    levels = dict(zip(params.factors, cell, strict=True))
    work = tuple(params.factors[name].index(levels[name]) for name in params.workload)
    choice = tuple((levels[n] != params.baseline[n], params.factors[n].index(levels[n])) for n in params.treatments)
    return (*work, *choice)


def _names(params: Variants, cells: Sequence[Cell]) -> dict[Cell, str]:
    """Name of each variant; InputError if two have the same."""
    names = {cell: _name(params, cell) for cell in cells}
    taken: dict[str, Cell] = {}
    for cell, name in names.items():
        if (other := taken.setdefault(name, cell)) != cell:
            expected = "a different name for each variant (`names`)"
            both = (dict(zip(params.factors, each, strict=True)) for each in (other, cell))
            fault = InputError(
                file=None, key=None, expected=expected, found=f"{name!r} for {' and '.join(map(str, both))}"
            )
            raise params.fault_at(("names",), fault)
    return names


def _name(params: Variants, cell: Cell) -> str:
    levels = dict(zip(params.factors, cell, strict=True))
    named = next((name for name, of in params.names.items() if of == levels), None)
    choice, task = (listed_levels({name: levels[name] for name in of}) for of in (params.treatments, params.workload))
    return named or (f"{choice} ({task})" if task else choice)


def _operation(metric: Metric, levels: Levels, names: Mapping[Cell, str], *, judged: bool) -> OperationResult:
    means = levels.means if levels.means and levels.means.known else None
    why = levels.means.unjudged if levels.means and levels.means.unjudged else Unjudged.SINGLE
    return OperationResult(
        slug=metric.slug,
        name=metric.name,
        unit=metric.unit,
        better=metric.better,
        gate=metric.gate,
        margin_percent=metric.margin_percent,
        zero_in=next((names[cell] for cell in levels.runs if levels.has_zero(cell)), None),
        model="none" if means is None else "mixed" if means.mixed else "linear",
        run_sd_percent=None if means is None else percent(math.sqrt(means.variance)),
        block_sd_percent=percent(math.sqrt(means.mixed.between)) if means and means.mixed else None,
        unjudged=None if means or judged else why,
        noise_source=means.source if means else NoiseSource.REPEATS if judged else NoiseSource.NONE,
    )


def _run(
    run: MeasuredRun, names: Mapping[Cell, str], params: Variants, metrics: Sequence[Metric], zeros: Set[str]
) -> VariantRunResult:
    by_metric = {metric.slug: run.value(metric, plain=metric.slug in zeros) for metric in metrics}
    values = {slug: value for slug, value in by_metric.items() if value is not None}
    levels = dict(zip(params.factors, run.cell, strict=True))
    facts = {name: value for name, value in run.facts.items() if name not in levels}
    return VariantRunResult(
        variant=names[run.cell], levels=levels, block=run.block, values=values, facts=facts, source=run.source
    )


def _pairs(params: Variants, cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """Pair each variant with its task's baseline, and with those that take the baseline's level in one more factor."""
    existing, pairs = set(cells), dict[tuple[Cell, Cell], None]()
    free = [list(params.factors).index(name) for name in params.treatments]
    bases = {i: params.baseline[name] for i, name in zip(free, params.treatments, strict=True)}
    for cell in sorted(cells, key=lambda each: _place(params, each)):
        for moved in (bases, *({i: level} for i, level in bases.items())):
            other = tuple(moved.get(i, level) for i, level in enumerate(cell))
            if other != cell and other in existing:
                pairs[cell, other] = None
    return [*pairs]


def _contrasts(
    params: Variants, metric: Metric, levels: Levels, names: Mapping[Cell, str]
) -> list[tuple[ContrastResult, Effect | None, Metric]]:
    rows = []
    for cell, other in _pairs(params, list(levels.runs)):
        base, new = levels.level(other), levels.level(cell)
        better, worse = (new, base) if metric.better == Better.HIGHER else (base, new)
        chance_sd, needed = _unproven(levels, cell, other)
        row = ContrastResult(
            operation=metric.slug,
            variant=names[cell],
            against=names[other],
            differs_in=[name for name, a, b in zip(params.factors, cell, other, strict=True) if a != b],
            base=base,
            new=new,
            delta_percent=_change(base, new),
            times_better=1.0 if base == new else better / worse if worse else None,
            status=Status.INCONCLUSIVE,
            chance_sd_percent=chance_sd,
            runs_needed=needed,
        )
        rows.append((row, levels.effect(cell, other), metric))
    return rows


def _change(base: float, new: float) -> float | None:
    """Change in percent; None from 0 to another level."""
    return 0.0 if base == new else 100.0 * (new / base - 1.0) if base else None


def _unproven(
    levels: Levels, cell: Cell, other: Cell, *, same_within: float | None = None
) -> tuple[float | None, dict[str, int | None]]:
    """Noise of one run (percent) that would explain a difference, and runs to prove it; None for levels of 0."""
    if levels.has_zero(cell, other):
        return None, {}
    log_ratio = math.log(levels.level(cell) / levels.level(other))
    runs = 2.0 / sum(1.0 / len(levels.runs[each]) for each in (cell, other))  # harmonic mean per variant
    return ranking.chance_sd(log_ratio, runs), ranking.runs_needed(log_ratio, same_within=same_within)


def _adjusted(contrasts: Sequence[tuple[ContrastResult, Effect | None, Metric]]) -> list[ContrastResult]:
    effects = [effect for _, effect, _ in contrasts if effect]
    adjusted = iter(holm([effect.p_value for effect in effects]))
    rows = []
    for row, effect, metric in contrasts:
        if effect is None:
            rows.append(row)
            continue
        p_adjusted = float(next(adjusted))
        tested = judge(effect, metric.margin_percent, metric.better, p_adjusted, size=float(len(effects)))
        more = {"required_runs": None} if isinstance(effect, Share) else {}
        rows.append(tested.filled(row).model_copy(update=more))
    return rows


def _effects(params: Variants, metric: Metric, means: CellMeans) -> tuple[list[TermResult], list[EffectResult]]:
    """Main effects of all factors outside the workload, and interactions of all pairs with such a factor."""
    factors = list(params.factors)
    bases = model.reference_levels(params.factors, params.baseline, means)
    every: list[tuple[int, ...]] = [(i,) for i, name in enumerate(factors) if name not in params.workload]
    every += [
        pair
        for pair in itertools.combinations(range(len(factors)), 2)
        if not {factors[i] for i in pair} <= set(params.workload)
    ]
    terms, effects = [], []
    for places in every:
        named = [factors[i] for i in places]
        rows, contrasts = [], []
        for levels in itertools.product(*([lv for lv in params.factors[factors[i]] if lv != bases[i]] for i in places)):
            of = tuple(bases[i] for i in places)
            if len(places) == 1:
                contrast = model.main_effect(means, places[0], levels[0], of[0])
            else:
                contrast = model.interaction(means, (places[0], places[1]), levels, of)
            if contrast is None:
                continue
            effect = means.effect(contrast)
            low, high = effect.interval() if effect else (None, None)
            size = percent(float(contrast @ means.means))
            row = {"operation": metric.slug, "factors": named, "levels": levels, "bases": of, "delta_percent": size}
            rows.append(EffectResult.model_validate({**row, "ci_low": low, "ci_high": high}))
            contrasts.append(contrast)
        if not rows:
            continue
        tested = means.test(np.array(contrasts))
        df, p_value = tested or (None, None)
        largest = max((row.delta_percent for row in rows), key=lambda size: abs(math.log1p(size / 100.0)))
        head = {"operation": metric.slug, "factors": named, "df": df, "p_value": p_value, "largest_percent": largest}
        terms.append(TermResult.model_validate(head))
        effects += rows
    return terms, effects


def _proven(terms: Sequence[TermResult]) -> list[TermResult]:
    adjusted = iter(holm([term.p_value for term in terms if term.p_value is not None]))
    rows = []
    for term in terms:
        p_adjusted = None if term.p_value is None else float(next(adjusted))
        proven = p_adjusted is not None and p_adjusted < ALPHA
        rows.append(term.model_copy(update={"p_adjusted": p_adjusted, "proven": proven}))
    return rows


def _ranks(params: Variants, metric: Metric, levels: Levels, names: Mapping[Cell, str]) -> Iterator[RankResult]:
    places = [list(params.factors).index(name) for name in params.workload]
    for task in dict.fromkeys(tuple(cell[i] for i in places) for cell in levels.runs):
        cells = [cell for cell in levels.runs if tuple(cell[i] for i in places) == task]
        for rank in ranking.rank_cells(levels, cells, metric.better) if len(cells) > 1 else ():
            yield RankResult(
                operation=metric.slug,
                workload=dict(zip(params.workload, task, strict=True)),
                variant=names[rank.cell],
                level=levels.level(rank.cell),
                first=rank.first,
                last=rank.last,
                runs_to_next=rank.runs_to_next,
            )


def _claims_of(params: Variants, metric: Metric, catalogue: Catalogue) -> Iterator[tuple[int, Claim]]:
    return ((i, each) for i, each in enumerate(params.claims) if catalogue.find(each.operation).slug == metric.slug)


PROVES = {
    "better": ({Status.IMPROVEMENT}, {Status.REGRESSION}),
    "worse": ({Status.REGRESSION}, {Status.IMPROVEMENT}),
    "same": ({Status.EQUIVALENT}, {Status.REGRESSION, Status.IMPROVEMENT}),
    "not_better": ({Status.REGRESSION, Status.EQUIVALENT}, {Status.IMPROVEMENT}),
}
"""Claim -> the statuses that confirm and that contradict it."""


def _claim(
    params: Variants, i: int, claim: Claim, metric: Metric, levels: Levels, names: Mapping[Cell, str]
) -> ClaimResult:
    cell, other = _cells_of(params, i, claim, levels, names)
    new, base = levels.level(cell), levels.level(other)
    effect = levels.effect(cell, other)
    chance_sd, needed = _unproven(
        levels, cell, other, same_within=metric.margin_percent if claim.says == "same" else None
    )
    better = (new < base) == (metric.better == Better.LOWER)
    small = max(new, base) <= min(new, base) * (1.0 + metric.margin_percent / 100.0)
    agrees = {"better": better, "worse": not better, "same": small, "not_better": not better or small}[claim.says]
    low, high = effect.interval() if effect and (base or new == base) else (None, None)
    confirming, contradicting = PROVES[claim.says]
    judged = judge(effect, metric.margin_percent, metric.better).status if effect else None
    excludes_zero = low is not None and high is not None and low * high > 0
    above_scatter = chance_sd is None or chance_sd >= ranking.PLAUSIBLE
    if judged in confirming:
        status = ClaimStatus.HOLDS
    elif judged in contradicting or (judged == Status.EQUIVALENT and excludes_zero and not agrees):
        status = ClaimStatus.CONTRADICTED
    elif judged == Status.EQUIVALENT:
        status = ClaimStatus.WITHIN_MARGIN
    elif not agrees:
        status = ClaimStatus.DISAGREES
    elif effect is None and claim.says != "same" and not small and above_scatter:
        status = ClaimStatus.LIKELY
    else:
        status = ClaimStatus.UNPROVEN
    return ClaimResult(
        says=claim.says,
        operation=metric.slug,
        variant=names[cell],
        against=names[other],
        text=claim.text,
        delta_percent=_change(base, new),
        ci_low=low,
        ci_high=high,
        status=status,
        chance_sd_percent=None if claim.says == "same" else chance_sd,
        runs_needed=needed,
    )


def _cells_of(params: Variants, i: int, claim: Claim, levels: Levels, names: Mapping[Cell, str]) -> tuple[Cell, Cell]:
    """The variant of a claim and the one that it is compared with."""
    cells = []
    for key, chosen in (("of", claim.of), ("against", {**claim.of, **(claim.against or params.baseline)})):
        cell = tuple(chosen.get(name, "") for name in params.factors)
        if cell not in levels.runs:
            fault = InputError(file=None, key=None, expected=f"levels of a variant in `{key}`", found=", ".join(cell))
            raise params.fault_at(("claims", i), fault)
        cells.append(cell)
    if cells[0] == cells[1]:
        fault = InputError(file=None, key=None, expected="two different variants to compare", found=names[cells[0]])
        raise params.fault_at(("claims", i), fault)
    return cells[0], cells[1]
