"""Make the site in build/site, without a network, a warning or a dead link.

python -m scripts.site
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.site.links import dead_links
from scripts.site.pages import ROOT, stage

BUILD = ROOT / "build"
_FROM_ELSEWHERE = re.compile(r"<script src=['\"]?https://unpkg\.com/[^>]*></script>")


def main() -> int:
    pages, site = BUILD / "pages", BUILD / "site"
    for folder in (pages, site):
        shutil.rmtree(folder, ignore_errors=True)
    config = stage(pages)
    (BUILD / "zensical.toml").write_text(config, encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", str(BUILD / "zensical.toml")]
    done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode or "warning" in said.lower():
        print(said, file=sys.stderr)
        return 1
    for page in site.rglob("*.html"):  # of the theme, for search by old browsers
        page.write_text(_FROM_ELSEWHERE.sub("", page.read_text(encoding="utf-8")), encoding="utf-8")
    dead = dead_links(site)
    for line in dead:
        print(line, file=sys.stderr)
    if dead:
        return 1
    count = sum(1 for _ in site.rglob("*.html"))
    print(f"{count} pages, no dead link: open {(site / 'index.html').relative_to(Path.cwd())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
