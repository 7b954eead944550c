# Each target is one command; continuous integration uses the same ones (.ci/run).
PYTHON := .venv/bin/python

.PHONY: setup fmt lint type test test-all browser pictures test-torch test-pythons test-lowest package test-package bench bench-ab bench-page faults soak demo conformance schema docs man budget check

setup: ; bash scripts/setup.sh dev
fmt: ; .venv/bin/ruff check --fix . && .venv/bin/ruff format .
lint: ; .venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/lint-imports && .venv/bin/codespell
type: ; .venv/bin/mypy
test: ; bash scripts/test.sh
test-all: ; $(PYTHON) -m pytest -n 2 -m "not bench and not browser"
# The page of msdump report in a chromium, and its program linted
browser: ; bash scripts/test_browser.sh
# Pictures of the documentation: terminals, and the report's page in a chromium
pictures: ; $(PYTHON) scripts/pictures.py docs/pictures && $(PYTHON) -m scripts.browser.pictures docs/pictures
test-torch: ; bash scripts/test_elsewhere.sh torch
test-pythons: ; bash scripts/test_elsewhere.sh pythons
test-lowest: ; bash scripts/test_elsewhere.sh lowest
# The files of a release, in build/dist
package: ; bash scripts/package.sh
# They are installed into fresh environments, and tried there
test-package: ; bash scripts/test_package.sh
faults: ; $(PYTHON) -m scripts.faults.run --count $(or $(COUNT),200)
# Goals of speed and memory; make bench ONLY=run,sync JSON=table.json
bench: ; $(PYTHON) -m scripts.bench.run $(if $(ONLY),--only "$(ONLY)") $(if $(JSON),--json "$(JSON)")
# Two commits in turns: make bench-ab A=main~5 B=main ONLY=run
bench-ab: ; $(PYTHON) -m scripts.bench.ab $(A) $(B) $(if $(ONLY),--only "$(ONLY)")
# The table of docs/performance.md from a measured one: make bench-page JSON=table.json
bench-page: ; $(PYTHON) -m scripts.bench.page $(JSON) docs/performance.md
# Kills, signals, full disks, threads and mutated inputs: make soak SECONDS=1200
soak: ; $(PYTHON) -m scripts.soak.run --seconds $(or $(SECONDS),60)
demo: ; bash scripts/dump_sync_dump.sh
conformance: ; $(PYTHON) -m scripts.conformance.run
schema: ; $(PYTHON) -m msdump.config.reference docs/reference/config.md docs/schema/mindspore_dump.schema.json && $(PYTHON) scripts/gradients.py docs/reference/gradients.md && $(PYTHON) scripts/primitives.py docs/reference/primitives.md && $(PYTHON) -m msdump.look.query.columns docs/reference/views.md && $(PYTHON) -m msdump.cli.documents docs/schema
# The documentation as a site: build/docs/index.html
docs: ; $(PYTHON) -c 'import sphinx' 2>/dev/null || bash scripts/setup.sh docs
	$(PYTHON) -m sphinx -q --fail-on-warning --keep-going docs build/docs
# Manual pages of msdump and its commands: man -l build/man/man1/msdump-run.1
man: ; $(PYTHON) scripts/man.py build/man/man1
# Lines, tokens and vague words of each room; lowers tests/budgets.csv where there are fewer now
budget: ; $(PYTHON) scripts/budget.py --lower
check: lint type test
