"""The paper's claims as functions of records: each is held, contradicted, or there are too few seeds to tell.

A claim's rule is its function's docstring. Those of `forgetting` and `memory` were written before the runs that they
judge; `read_again` and `text_alone` have others, written later, of claims whose first rule asks for more or less than
the text says.
`checks` says what the words of a rule mean. For all of them:

- A claim is *held* where every check of its rule holds; *contradicted* where the interval of one lies wholly on the
  other side of what is asked for; else there are *too few to tell*, and the verdict says how many seeds would tell if
  means and spread stay as they are.

- A claim is judged on the runs that its figure has in `paper.specs` at a scale, all of the methods and settings
  that it is about: if one is missing or not done, or its images are made up, or there is one seed where an interval
  needs two, there is *not enough data*.
- Accuracies are test accuracies; "at the end" is after the figure's last task. Differences are paired by seed.
- Whoever a method is above must have learned its newest tasks, else there is *not enough data*: its accuracy on tasks
  that it has just learned, mean over tasks and seeds, is no more than 5 points below that of fine-tuning: of adam on
  permuted and non-linear MNIST and on colour CIFAR10, of sgd on split CIFAR100 and the mixture, as the methods are
  trained there.
- Of a claim that is not held, or whose methods have not learned, likely reasons are tested: `paper.likely_reasons` has
  them, with runs of their own, and the same rule judges those. The verdict is not touched by it.
"""

from selfreminder.paper.claims import forgetting, memory, read_again, text_alone
from selfreminder.paper.claims.verdict import (
    Claim,
    Tested,
    Verdict,
    as_json,
    judge,
    list_claims,
    summarize,
    summarize_read_again,
)

__all__ = [
    "Claim",
    "Tested",
    "Verdict",
    "as_json",
    "forgetting",
    "judge",
    "list_claims",
    "memory",
    "read_again",
    "summarize",
    "summarize_read_again",
    "text_alone",
]
