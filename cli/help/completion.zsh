#compdef @PROGRAM@
# zsh completion of @PROGRAM@
_@NAME@() {
  local line word directive
  local -a lines candidates
  word=${(Q)words[1]}
  lines=("${(@f)$(command ${word/#\~/$HOME} @COMPLETE@ "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
  directive=${lines[-1]}
  [[ ${words[CURRENT]} == -*=* ]] && compset -P '-*='
  for line in "${(@)lines[1,-2]}"; do
    word=${line%%$'\t'*}
    candidates+=("${word//:/\\:}${${line#$word}/$'\t'/:}")
  done
  if (( $#candidates )); then
    _describe -t values value candidates
  elif [[ $directive = :0 ]]; then
    _files
  elif [[ $directive = :16 ]]; then
    _files -/
  else
    return 1
  fi
}
# as a file of $fpath, it is first run when it is to complete something
if [[ ${funcstack[1]} = _@PROGRAM@ ]]; then _@NAME@; else compdef _@NAME@ @PROGRAM@; fi
