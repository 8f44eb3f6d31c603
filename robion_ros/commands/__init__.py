# SPDX-License-Identifier: Apache-2.0
"""What `robion` can do, a module each: run(arguments) returns the exit code."""
