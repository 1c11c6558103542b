#compdef @PROGRAM@
_triton_ops() {
    local -a lines
    lines=("${(@f)$(@PROGRAM@ @COMPLETE@ "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ "${lines[-1]}" == "@NO_FILES@" ]]; then lines[-1]=(); else _files; fi
    lines=("${(@)lines//:/\\:}")
    _describe '@PROGRAM@' "${(@)lines/$'\t'/:}"
}
if [[ "${funcstack[1]}" == _triton_ops ]]; then _triton_ops "$@"; else compdef _triton_ops @PROGRAM@; fi
