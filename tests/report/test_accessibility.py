"""Pages for those who do not see them, or see them on a phone, in the dark: axe-core finds no serious fault."""

import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import torch

from selfreminder.memory.memory import Memory
from selfreminder.report.folder_results import read_folder_results
from selfreminder.report.gallery import render_gallery
from selfreminder.report.page import render_comparison
from selfreminder.store.history import HistoryRow
from selfreminder.store.history_page import render_history
from selfreminder.store.page import render_version
from tests.store.test_version_page import shown

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
RESULTS = Path(__file__).parents[2] / "results"
WHEN = "2026-01-01T00:00:00+00:00"
AXE = "axe-core@4.14.0"
LOOK = """
addEventListener("load", async () => {
  const found = await axe.run();
  const result = document.createElement("script");
  result.type = "application/json";
  result.id = "found";
  const where = (each) => each.nodes.map((node) => node.html.slice(0, 120)).join(" | ");
  const said = (each) => `${each.impact}: ${each.help}: ${where(each)}`;
  result.textContent = JSON.stringify({
    serious: found.violations.filter((each) => ["serious", "critical"].includes(each.impact)).map(said),
    passed: found.passes.length,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    overflow: document.documentElement.scrollWidth - innerWidth,
  });
  document.body.append(result);
});
"""


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script that looks for faults, from npm."""
    if CHROMIUM is None or shutil.which("npm") is None:
        pytest.skip("needs chromium and npm")
    folder = tmp_path_factory.mktemp("axe")
    done = subprocess.run(["npm", "pack", AXE, "--silent"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"npm has no {AXE}: {done.stderr}")
    with tarfile.open(folder / done.stdout.split()[-1]) as archive:
        archive.extract("package/axe.min.js", folder, filter="data")
    return (folder / "package" / "axe.min.js").read_text(encoding="utf-8")


def pages() -> dict[str, str]:
    memory = Memory.of({"x": torch.rand(12, 784)}, torch.randn(12, 10), task=0, labels=torch.arange(12) % 10)
    return {
        "comparison": render_comparison(read_folder_results(RESULTS / "permuted-mnist-demo")),
        "paper": (RESULTS / "paper-small" / "index.html").read_text(encoding="utf-8"),
        "paper, begun": (RESULTS / "paper-full" / "index.html").read_text(encoding="utf-8"),
        "version": render_version(shown()),
        "history": render_history([HistoryRow(1, "current", "init", None, WHEN, "", "", {"v1": 0.9}, {"v1": 9}, "")]),
        "memory": render_gallery(memory, "memory.safetensors"),
    }


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (500, "dark")])
@pytest.mark.parametrize("name", ["comparison", "paper", "paper, begun", "version", "history", "memory"])
def test_no_serious_fault(name: str, width: int, scheme: str, axe: str, tmp_path: Path) -> None:
    text = pages()[name]
    # Its policy would let nothing of ours run.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    text = text.replace("</body>", f"<script>{axe}</script><script>{LOOK}</script></body>")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000", "--dump-dom"]
    options += [f"--window-size={width},900", f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"]
    command = [str(CHROMIUM), *options, f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "page.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    found = re.search(r'<script type="application/json" id="found">(.*?)</script>', done.stdout, re.DOTALL)
    assert found
    seen = json.loads(found[1])
    assert seen["dark"] == (scheme == "dark")
    assert seen["passed"] > 10
    assert seen["serious"] == []
    assert seen["overflow"] <= 0
