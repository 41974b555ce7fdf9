{{/* What the pods of the agent and of the learner have in common. */}}

{{/* An image by its tag, or by its digest: (list values-of-the-image chart). */}}
{{- define "fedl2.image" -}}
{{- $image := index . 0 }}
{{- if and $image.digest (not $image.tag) }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ $image.tag | default (index . 1).AppVersion }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{- define "fedl2.podSecurityContext" -}}
runAsNonRoot: true
{{- with ternary .Values.podSecurityContext (dict "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532) (hasKey .Values "podSecurityContext") }}
{{- toYaml . | nindent 0 }}
{{- end }}
# A volume's private keys keep their mode.
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "fedl2.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Where pods may run, from the values of the agent or of the learner. */}}
{{- define "fedl2.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Annotations of pods: (list the-user's settings). New settings are new pods. */}}
{{- define "fedl2.podAnnotations" -}}
{{- merge (dict "fedl2.io/settings" (sha256sum (index . 1))) (deepCopy (index . 0 | default dict)) | toYaml }}
{{- end }}
