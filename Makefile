# Names for those who type make; the work is in scripts/.
.PHONY: setup demo demo-zh test lint bench docs

setup:
	@scripts/setup

demo:
	@scripts/demo

demo-zh:
	@scripts/demo zh

test:
	@scripts/test

lint:
	@scripts/lint

bench:
	@scripts/bench

docs:
	@scripts/docs
