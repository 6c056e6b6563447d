"""What tests of Farhand and of its systems need: a clock of their own, scenes, conformance suites."""
