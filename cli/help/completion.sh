#!/bin/sh
# Completion of kubectl denolith. In PATH as kubectl_complete-denolith, and executable, it is what kubectl 1.26 and later runs.
exec @PROGRAM@ @COMPLETE@ "$@"
