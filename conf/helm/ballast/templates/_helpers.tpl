{{- define "ballast.name" -}}
{{- $name := contains "ballast" .Release.Name | ternary .Release.Name (printf "%s-ballast" .Release.Name) -}}
{{- $name | trunc 48 | trimSuffix "-" -}}
{{- end }}

{{- define "ballast.selector" -}}
app.kubernetes.io/name: ballast
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ballast.labels" -}}
{{ include "ballast.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "ballast.tables" -}}
{{ .Values.tables | default "/var/lib/ballast/tables" }}
{{- end }}

{{- define "ballast.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "ballast.name" .) }}
{{- end }}

{{- define "ballast.scheme" -}}
{{ empty .Values.secrets.tls | ternary "HTTP" "HTTPS" }}
{{- end }}

{{/* One pod of a component may go at a time, where there are several. */}}
{{- define "ballast.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "ballast.name" .top }}-{{ .component }}
  labels: {{ include "ballast.labels" .top | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "ballast.selector" .top | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* A Service by which Prometheus finds the pods of a component that only gives out metrics. */}}
{{- define "ballast.metricsService" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "ballast.name" .top }}-{{ .component }}
  labels:
    {{- include "ballast.labels" .top | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  clusterIP: None
  selector:
    {{- include "ballast.selector" .top | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  ports:
    - { name: metrics, port: {{ .port }}, targetPort: {{ .port }} }
{{- end }}

{{/*
The template of a pod. Takes a dict: top; component; grace, the seconds that it may take to end;
volume, how it mounts the volume ("", read or write); secrets, those of .Values.secrets that it reads
from files; container, as YAML what its container has of its own; init, the same of one that comes first.
*/}}
{{- define "ballast.pod" -}}
{{- $values := .top.Values -}}
metadata:
  labels:
    {{- include "ballast.labels" .top | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  annotations:
    checksum/settings: {{ include "ballast.files" .top | sha256sum }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "ballast.serviceAccount" .top }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .grace }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: { type: RuntimeDefault }
  {{- range $key, $value := dict "imagePullSecrets" $values.image.pullSecrets "nodeSelector" $values.nodeSelector "affinity" $values.affinity "tolerations" $values.tolerations }}
  {{- with $value }}
  {{ $key }}: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "ballast.selector" .top | nindent 10 }}
          app.kubernetes.io/component: {{ .component }}
  {{- with .init }}
  initContainers:
    - {{ . | nindent 6 | trim }}
      {{- include "ballast.container" $ | nindent 6 }}
  {{- end }}
  containers:
    - name: {{ .component }}
      {{- .container | nindent 6 }}
      {{- include "ballast.container" . | nindent 6 }}
  volumes:
    - { name: tmp, emptyDir: {} }
    - { name: settings, configMap: { name: {{ include "ballast.name" .top }}-settings } }
    {{- if .volume }}
    - { name: state, persistentVolumeClaim: { claimName: {{ $values.storage.claim | default (include "ballast.name" .top) }} } }
    {{- end }}
    {{- range include "ballast.secretFiles" . | fromYamlArray }}
    - { name: {{ .volume }}, secret: { secretName: {{ .secret }}, defaultMode: 0440 } }
    {{- end }}
{{- end }}

{{/* What every container has: image, rights, environment, files. Takes the dict of ballast.pod. */}}
{{- define "ballast.container" -}}
{{- $values := .top.Values -}}
image: {{ $values.image.repository }}:{{ $values.image.tag | default .top.Chart.AppVersion }}
imagePullPolicy: {{ $values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
env:
  - { name: BALLAST_CONF, value: "{{ include "ballast.overlays" .top }}" }
  {{- range include "ballast.secretFiles" . | fromYamlArray }}
  {{- if .variable }}
  - { name: {{ .variable }}, value: {{ .path }} }
  {{- end }}
  {{- end }}
  {{- with $values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.secrets.env }}
envFrom:
  {{- range . }}
  - { secretRef: { name: {{ . }} } }
  {{- end }}
{{- end }}
volumeMounts:
  - { name: tmp, mountPath: /tmp }
  - { name: settings, mountPath: /etc/ballast/settings, readOnly: true }
  {{- if .volume }}
  - { name: state, mountPath: /var/lib/ballast, readOnly: {{ eq .volume "read" }} }
  {{- end }}
  {{- range include "ballast.secretFiles" . | fromYamlArray }}
  - { name: {{ .volume }}, mountPath: {{ .folder }}, readOnly: true }
  {{- end }}
{{- end }}

{{/* The Secrets that a pod reads as files: a YAML list of volume, secret, folder, variable and path. */}}
{{- define "ballast.secretFiles" -}}
{{- $variables := dict "tokens" "BALLAST_TOKEN_SECRET_FILE" "kafkaPassword" "BALLAST_KAFKA_PASSWORD_FILE" }}
{{- $secrets := .top.Values.secrets }}
{{- range $kind := .secrets }}
{{- $one := index $secrets $kind }}
{{- if and (kindIs "map" $one) $one.name }}
- volume: {{ $kind | kebabcase }}
  secret: {{ $one.name }}
  folder: /run/secrets/{{ $kind | kebabcase }}
  variable: {{ get $variables $kind | quote }}
  path: /run/secrets/{{ $kind | kebabcase }}/{{ $one.key }}
{{- else if and (eq $kind "tls") $one }}
- { volume: tls, secret: {{ $one }}, folder: /etc/ballast/tls }
{{- end }}
{{- end }}
{{- range $secrets.files }}
- { volume: file-{{ .name }}, secret: {{ .name }}, folder: {{ .path }} }
{{- end }}
{{- end }}

{{/* What BALLAST_CONF names, the later wins: overlays of the image, what the chart needs, yours. */}}
{{- define "ballast.overlays" -}}
{{- $first := .Values.bridge.enabled | ternary (list "pulsar") list -}}
{{- $files := list "/etc/ballast/settings/chart.toml" "/etc/ballast/settings/own.toml" -}}
{{- concat $first .Values.overlays $files | uniq | join "," -}}
{{- end }}

{{/* The content of both files. */}}
{{- define "ballast.files" -}}
{{- $lookup := printf "%s-lookup.%s.svc" (include "ballast.name" .) .Release.Namespace -}}
chart.toml: |
  [pipeline]
  clusters = [{{ .Values.cluster | quote }}]

  [kafka]
  bootstrap_servers = {{ splitList "," .Values.bootstrap | toJson }}

  [lookup]
  host = "0.0.0.0"
  port = 8080
  stop_delay_ms = 5000
  advertised_address = "{{ $lookup }}:8080"
  allowed_hosts = ["{{ trimSuffix ".svc" $lookup }}", "{{ $lookup }}", "{{ $lookup }}.cluster.local"]
  {{- if .Values.secrets.tls }}
  certificate_file = "/etc/ballast/tls/tls.crt"
  key_file = "/etc/ballast/tls/tls.key"
  {{- end }}

  [telemetry]
  host = "0.0.0.0"
own.toml: |
  {{- .Values.settings | nindent 2 }}
{{- end }}
